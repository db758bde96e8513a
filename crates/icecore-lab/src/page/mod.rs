//! The report: one page with everything in it. It opens without a network, in light and dark, and prints.
//!
//! All words of a result reach the page through `maud`, which escapes them, or as JSON without `<`.

mod assets;
mod beside;
mod checks;
mod counts;
mod facts;
mod findings;
mod losses;
mod method;
mod moment;
mod studies;
mod summary;

use crate::chart::Chart;
use crate::charts;
use crate::error::{Error, Result};
use crate::figure;
use crate::report::{Report, System};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use checks::Verdict;
pub(crate) use checks::is_time as is_time_check;
pub use summary::sentences;

/// A result with the name that the page calls it by.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// Usually the name of the file.
    pub name: String,
    /// The result.
    pub report: Report,
}

/// A study that should be in the report and has no result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The experiment.
    pub experiment: String,
    /// Why there is no result.
    pub reason: String,
}

/// What the page holds for programs, in the element with the identifier `data`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// The results, without series: those are in the charts, and in the documents.
    pub results: Vec<Report>,
    /// The charts of each result.
    pub charts: Vec<Vec<Chart>>,
}

impl Data {
    fn of(documents: &[Document]) -> Self {
        let without_series = |system: &System| System { series: BTreeMap::new(), ..system.clone() };
        let result = |document: &Document| {
            let systems = document.report.systems.iter();
            let systems = systems.map(|(name, system)| (name.clone(), without_series(system))).collect();
            Report { systems, ..document.report.clone() }
        };
        Self {
            results: documents.iter().map(result).collect(),
            charts: documents.iter().map(|document| charts::of(&document.report)).collect(),
        }
    }

    /// JSON that cannot end the element that holds it.
    fn embedded(&self) -> Result<String> {
        let refuse = |error: serde_json::Error| Error::NotAResult {
            what: "a result".to_owned(),
            reason: error.to_string(),
        };
        let text = serde_json::to_string(self).map_err(refuse)?;
        Ok(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
    }
}

/// The page.
///
/// # Errors
/// There is no result to show.
pub fn render(documents: &[Document], missing: &[Missing]) -> Result<String> {
    if documents.is_empty() && missing.is_empty() {
        let (what, reason) = ("a report".to_owned(), "there is no result to show".to_owned());
        return Err(Error::Inconclusive { what, reason });
    }
    let data = Data::of(documents);
    let embedded = data.embedded()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head())
            body {
                header {
                    h1 { "What a snapshot costs" }
                    p class="lead" { (facts::where_and_when(documents)) }
                    (facts::labels(documents))
                }
                main {
                    (summary::section(documents, missing))
                    (counts::section(documents, &data.charts))
                    (checks::section(documents))
                    (facts::unavailable(documents, missing))
                    @for (number, document) in documents.iter().enumerate() {
                        (studies::section(number, document, &data.charts[number]))
                    }
                    (method::section(documents))
                }
                (assets::notice())
                script id="data" type="application/json" { (PreEscaped(embedded)) }
                script { (PreEscaped(assets::UPLOT_JS)) }
                script { (PreEscaped(assets::REPORT_JS)) }
            }
        }
    };
    Ok(page.into_string())
}

fn head() -> Markup {
    html! {
        head {
            meta charset="utf-8";
            // Nothing may be loaded, whatever the page says.
            meta http-equiv="Content-Security-Policy"
                content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { "Icecore lab: what a snapshot costs" }
            style { (PreEscaped(assets::UPLOT_CSS)) (PreEscaped(figure::STYLE)) (PreEscaped(assets::REPORT_CSS)) }
        }
    }
}

/// A chart: the static picture, which the script replaces on a screen. Paper and browsers without scripts
/// keep it.
fn chart(number: usize, chart: &Chart) -> Markup {
    html! {
        figure class="chart" id={ "d" (number) "-" (chart.id) } data-document=(number) data-chart=(chart.id) {
            (PreEscaped(figure::inline(chart)))
        }
    }
}

/// A number for people, not rounded to nothing.
fn number(value: f64) -> Markup {
    html! { span title=(value) { (figure::short(value)) } }
}

/// A cell of a table, empty where there is no number.
fn cell(value: Option<f64>) -> Markup {
    html! { td class="number" { @if let Some(value) = value { (number(value)) } } }
}
