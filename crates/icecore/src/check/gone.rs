//! What is gone, in the words of those who miss it: files, places in them, versions.

use super::{Area, Problem};
use crate::engine::Engine;
use crate::format::superblock::LedgerPointer;
use crate::location::Lookup;
use crate::pool::{Damage, DamageList, Finding, Place, name_damage, shown};
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, Slot, Stream};
use std::collections::BTreeMap;

/// What a scrub would say, as a problem.
pub(super) fn problem(area: Area, finding: Finding) -> Problem {
    let mut what = finding.sentence();
    let Finding { versions, file, length, path, hides, spare, .. } = finding;
    match (file, path) {
        (Some((inode, offset)), Some(path)) => {
            let path = shown(&path);
            what += &format!(", in {path} (inode {inode}): {length} bytes at offset {offset}");
        }
        (Some((inode, offset)), None) => {
            what += &format!(", in the file with inode {inode}: {length} bytes at offset {offset}");
        }
        (None, _) => {}
    }
    if let Some(hidden) = hides {
        what += &format!(", hides {hidden}");
    }
    Problem { area, what, versions, harmless: spare }
}

/// Nodes of trees that cannot be read. Each comes with a version that needs it, for the sets may not know.
pub(super) fn nodes(engine: &Engine, lost: BTreeMap<LogAddress, (Damage, String)>) -> Vec<Problem> {
    let mut list = DamageList::default();
    let mut needed: BTreeMap<LogAddress, String> = BTreeMap::new();
    let mut unlisted = 0;
    for (address, (damage, name)) in lost {
        unlisted += u64::from(!list.add(damage));
        needed.insert(address, name);
    }
    let named = name_damage(engine, &list.into_sorted()).into_iter().map(|named| {
        let mut finding = named.finding;
        if finding.versions.is_empty() {
            finding.versions.extend(needed.get(&named.first.1).cloned());
        }
        finding
    });
    as_problems(named.collect(), needed.len() as u64 + unlisted, Area::Trees)
}

/// Blocks that the log changed, and that could not be read any more when it was replayed.
pub(super) fn lost_in_replay(engine: &Engine) -> Vec<String> {
    let mut list = DamageList::default();
    for start in engine.blocks.pending().lost() {
        let place = Place::Text("blocks that were changed in files that are gone".to_owned());
        list.add(Damage { run: Run { stream: Stream::Merged, start, length: BlockCount(1) }, place });
    }
    let named = name_damage(engine, &list.into_sorted());
    named.into_iter().map(|named| problem(Area::Data, named.finding).what).collect()
}

/// What lives in segments of which the file is missing or cut short, and is gone with it. Nodes have been
/// reported. `with_data`: all data is read later, and its damage reported then.
pub(super) fn absent(engine: &Engine, with_data: bool) -> Vec<Problem> {
    let files = engine.blocks.files();
    let segments = engine.state().segments.absent();
    let mut problems = Vec::new();
    for segment in segments {
        let Some(error) = files.what_is_absent(segment) else { continue };
        let entries = match engine.blocks.entries_of_segment(segment) {
            Ok(entries) => entries,
            Err(unread) => {
                problems.push(Problem::of(Area::Places, format!("{error}; {unread}")));
                continue;
            }
        };
        let mut list = DamageList::default();
        let (mut block, mut count, mut listed_blocks) = ([0; BLOCK_BYTES], 0, 0);
        for entry in entries {
            for index in 0..entry.run.length.0 {
                let (slot, start) =
                    (Slot(entry.slot.0 + index as u32), entry.run.start.plus(BlockCount(index)));
                let lives = engine.state().history.lives(entry.run.stream, start).unwrap_or(true);
                if !lives || files.read(segment, slot, &mut block).is_ok() {
                    continue;
                }
                count += 1;
                if entry.run.stream != Stream::Node && !with_data {
                    let run = Run { start, length: BlockCount(1), ..entry.run };
                    list.add(Damage { run, place: Place::Text(error.to_string()) });
                    listed_blocks += 1;
                }
            }
        }
        let named = name_damage(engine, &list.into_sorted());
        let found =
            as_problems(named.into_iter().map(|named| named.finding).collect(), listed_blocks, Area::Places);
        // One that is missing is needed from its beginning on.
        if engine.needs_none_of(segment, files.cut(segment).unwrap_or(Slot(0))) {
            let what = format!("{error}; nothing that lives is gone with it");
            problems.push(Problem::of(Area::Places, what).harmless());
        } else if count == 0 {
            problems.push(Problem::of(Area::Places, format!("{error}, and part of the books was there")));
        }
        problems.extend(found);
    }
    problems
}

/// Blocks that live and have no place any more: what had it was lost, and could not be made again.
pub(super) fn placeless(engine: &Engine) -> Vec<Problem> {
    let runs: Vec<Run> = {
        let state = engine.state();
        Stream::ALL
            .iter()
            .flat_map(|stream| state.history.live_runs(*stream).filter_map(Result::ok))
            .collect()
    };
    let mut unread = None;
    let mut list = DamageList::default();
    let mut count = 0;
    for run in runs {
        let mut at = run.start;
        while at < run.end() {
            let together = match place(engine, run.stream, at, &mut unread) {
                Ok(together) => together,
                Err(place) => {
                    count += 1;
                    list.add(Damage { run: Run { start: at, length: BlockCount(1), ..run }, place });
                    BlockCount(1)
                }
            };
            at = at.plus(together);
        }
    }
    let named = name_damage(engine, &list.into_sorted());
    as_problems(named.into_iter().map(|named| named.finding).collect(), count, Area::Places)
}

/// How many blocks from one on have a place, or need none; else what to say of that one. `unread`: the last
/// chunk of the map that could not be read, which is not tried again for each of its blocks.
fn place(
    engine: &Engine,
    stream: Stream,
    at: LogAddress,
    unread: &mut Option<(LedgerPointer, String)>,
) -> Result<BlockCount, Place> {
    // Nodes without a place were met when the trees were walked, and others may not have been written yet.
    if stream == Stream::Node || stream == Stream::Merged && engine.blocks.pending().get(at).is_some() {
        return Ok(BlockCount(1));
    }
    let known = engine.blocks.map().read().lookup(stream, at);
    let Lookup::Absent(absent) = known else {
        return if let Lookup::At(_, _, together) = known { Ok(together) } else { Err(Place::Nowhere) };
    };
    if let Some((chunk, why)) = unread
        && *chunk == absent.place
    {
        return Err(Place::Text(why.clone()));
    }
    match engine.blocks.lookup(stream, at) {
        Ok(Some((_, _, together))) => Ok(together),
        Ok(None) => Err(Place::Nowhere),
        Err(error) => {
            *unread = Some((absent.place, error.to_string()));
            Err(Place::Text(error.to_string()))
        }
    }
}

/// Findings that stand for so many blocks in all.
fn as_problems(findings: Vec<Finding>, count: u64, area: Area) -> Vec<Problem> {
    let listed: u64 = findings.iter().map(|finding| finding.blocks).sum();
    let mut problems: Vec<Problem> = findings.into_iter().map(|finding| problem(area, finding)).collect();
    if listed < count {
        problems.push(Problem::of(area, format!("{} more lost blocks are not listed", count - listed)));
    }
    problems
}
