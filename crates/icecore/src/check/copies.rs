//! Second copies of what files are found by, against what they are of.

use super::{Area, CheckReport, Problem};
use crate::copies::{MendCounts, Mended};
use crate::engine::Engine;
use crate::units::{BlockCount, Stream};

/// Reads both copies of every node that lives, of the ledger and of the headers of their segments. What is
/// not what was written is among what was mended, in memory; what has no copy that is, in the report already.
pub(super) fn compare(engine: &Engine) {
    let (runs, segments) = {
        let state = engine.state();
        let runs: Vec<_> = state.history.live_runs(Stream::Node).filter_map(Result::ok).collect();
        let kinds = state.segments.all().into_iter();
        let kinds = kinds.filter_map(|segment| state.segments.kind(segment).map(|kind| (segment, kind)));
        (runs, kinds.filter(|(_, kind)| !kind.has_table()).collect::<Vec<_>>())
    };
    for run in runs {
        for index in 0..run.length.0 {
            let address = run.start.plus(BlockCount(index));
            if engine.blocks.locate(Stream::Node, address).is_ok() {
                // Where neither is right the walk through the trees has said so.
                let _ = engine.nodes.read_both(address);
            }
        }
    }
    for (segment, kind) in segments {
        engine.inspect_header(segment, kind);
    }
    // One that is damaged in both places could not have been read at opening.
    engine.inspect_ledger();
}

/// What was found so far not to be what was written, where something else says what was.
pub(super) fn mended(engine: &Engine, report: &mut CheckReport) {
    // Superblocks are looked at before all else.
    let mends = engine.blocks.files().copies().mends_since(MendCounts::default()).without(Mended::Twin);
    let unlisted = mends.unlisted();
    for mend in mends.listed {
        let problem = match mend.of {
            Mended::Original => Problem::of(Area::Copies, format!("{}; its copy is whole", mend.what)),
            Mended::Copy => {
                Problem::of(Area::Copies, format!("{}; what it is a copy of is whole", mend.what))
            }
            Mended::Header => Problem::of(Area::Opening, mend.what),
            Mended::Twin => continue,
        };
        report.add(problem.harmless());
    }
    if unlisted > 0 {
        let what = format!("{unlisted} more places are damaged, with nothing lost, and are not listed");
        report.add(Problem::of(Area::Copies, what).harmless());
        report.count += unlisted - 1;
    }
}

/// What has no copy and should have one.
pub(super) fn lacking(engine: &Engine, report: &mut CheckReport) {
    let stand = engine.blocks.files().copies().report();
    if !stand.is_whole() {
        let why = stand.why.unwrap_or_else(|| "some are missing".to_owned());
        let what = format!("not everything has its second copy: {why}");
        report.add(Problem::of(Area::Copies, what).harmless());
    }
}
