//! How the numbers came about.

use super::{Document, number};
use crate::driving;
use crate::report::Parameter;
use maud::{Markup, html};

pub(super) fn section(documents: &[Document]) -> Markup {
    let rounds = documents.iter().flat_map(|document| document.report.systems.values());
    let fewest = rounds.map(|system| system.samples.len()).filter(|samples| *samples > 0).min().unwrap_or(0);
    html! {
        section id="method" {
            h2 { "Method" }
            ul {
                li {
                    "Every system runs on the same machine and disk, with the same durability. In \
                     valuation, backup, placement, many and the run sync of shock a write counts when it \
                     is durable. The runs direct, small and randomio of shock flush nothing before they \
                     end, fsync100 flushes after each 100th write, and full after each 64th. fragment \
                     flushes at the end of each of its steps, and blog flushes nothing. \
                     The loads of bonnie++ and sysbench flush as these programs do. Tables and charts say \
                     it beside the names of the runs of shock."
                }
                li {
                    "Systems run in turn, round after round, in alternating order. What disturbs the \
                     machine disturbs all of them."
                }
                li { "A value is the median over the rounds. The fewest rounds of any system here are " (fewest) "." }
                li {
                    "An interval is the middle 95 % of 10,000 bootstrap resamples of the rounds. One \
                     round alone has no spread to show."
                }
                li {
                    "Requests, bytes and flushes are counted by the kernel for the block device, over \
                     a fixed number of writes. Those of randomio are counted over a fixed time."
                }
                li {
                    "Lines over time are medians over the rounds at each second. Percentiles and heat \
                     maps are of at most 10,000 latencies of each run, the slowest always among them."
                }
                (costs(documents, driving::PARAMETER, "Microseconds of each operation that driving takes"))
                (costs(documents, driving::OF_PROGRAM, "Microseconds that starting a program takes"))
                li {
                    "Published figures are those that the authors of the studies printed. They come \
                     from other machines and stand beside ours, marked; no value here is computed \
                     from both. Counts of systems that this machine lacks were taken by this project \
                     in an emulated machine, and are marked in the same way."
                }
                li {
                    "At full size, too, some studies are smaller than those published. The file of \
                     fragment has 2 GiB, and that of the study 100 GB. The database of backup has \
                     500 MB, and that of the study 600 GB. Each run of randomio takes 15 s."
                }
                li {
                    "Quick runs are small and show that the lab works. Every picture of such a run \
                     says so."
                }
                li {
                    "An emulated machine counts as a real one does, and its times mean nothing. Its \
                     results serve for counts and ratios alone."
                }
                li { "The JSON documents hold every sample, and of latencies 10,000 of each run. " code { "icecore lab run all" } " repeats the whole report." }
            }
        }
    }
}

/// What a parameter says of each result that has it.
fn costs(documents: &[Document], parameter: &str, what: &str) -> Markup {
    let cost = |document: &Document| match document.report.parameters.get(parameter)? {
        Parameter::Number(cost_us) => Some((document.name.clone(), *cost_us)),
        _ => None,
    };
    let costs: Vec<(String, f64)> = documents.iter().filter_map(cost).collect();
    html! {
        @if !costs.is_empty() {
            li {
                (what) ": "
                @for (place, (name, cost_us)) in costs.iter().enumerate() {
                    @if place > 0 { ", " } (name) " " (number(*cost_us))
                }
                "."
            }
        }
    }
}
