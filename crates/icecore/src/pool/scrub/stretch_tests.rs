//! Damaged blocks that are neighbours are reported as one, however many there are, and each of them is
//! counted.

use super::damage::ENTRIES_MAX;
use super::*;
use crate::format::segment::file_name;
use crate::namespace::Read as _;
use crate::options::{InitOptions, OpenOptions};
use crate::units::{InodeNumber, SegmentId};
use crate::{Creation, DestroyTarget};
use std::collections::BTreeMap;
use std::path::Path;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn open(folder: &Path) -> Pool {
    let options = OpenOptions {
        background: false,
        control_socket: false,
        block_cache_bytes: 0,
        node_cache_bytes: 0,
        ..OpenOptions::default()
    };
    Pool::open_directory(folder, &options).unwrap()
}

/// A pool with a file of so many blocks, written from its beginning to its end.
fn made(folder: &Path, blocks: u64) -> (Pool, InodeNumber) {
    Pool::init_directory(folder, &InitOptions::small()).unwrap();
    let pool = open(folder);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for first in (0..blocks).step_by(256) {
        let bytes = vec![first as u8 + 1; (256.min(blocks - first) * BLOCK) as usize];
        db.write(file, first * BLOCK, &bytes).unwrap();
    }
    drop(db);
    pool.checkpoint().unwrap();
    (pool, file)
}

/// Where blocks of the file lie, as the dataset has it now.
fn places(pool: &Pool, file: InodeNumber, blocks: impl Iterator<Item = u64>) -> Vec<(SegmentId, u64)> {
    let view = pool.view("db").unwrap();
    let engine = pool.engine();
    let place = |block| {
        let run = view.reader().run_at(file, crate::units::FileBlock(block)).unwrap().unwrap();
        let (segment, slot, _) = engine.blocks.locate(run.stream, run.start).unwrap();
        (segment, engine.geometry.offset(slot))
    };
    blocks.map(place).collect()
}

fn flip(folder: &Path, places: &[(SegmentId, u64)]) {
    let mut of_segment: BTreeMap<SegmentId, Vec<u64>> = BTreeMap::new();
    places.iter().for_each(|(segment, offset)| of_segment.entry(*segment).or_default().push(*offset));
    for (segment, offsets) in of_segment {
        let path = folder.join(file_name(segment));
        let mut bytes = std::fs::read(&path).unwrap();
        offsets.into_iter().for_each(|offset| bytes[offset as usize + 7] ^= 4);
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn a_stretch_is_one_finding_for_each_who_see_it() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, file) = made(folder.path(), 256);
    pool.snapshot(&["db@s".to_owned()], false, &[]).unwrap();
    let corrupt = places(&pool, file, 64..192);
    pool.dataset("db").unwrap().write(file, 100 * BLOCK, &vec![9; 10 * BLOCK as usize]).unwrap();
    pool.checkpoint().unwrap();
    flip(folder.path(), &corrupt);
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.spare, report.unlisted()), (128, 0, 0), "{report:?}");
    let mut said: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            assert_eq!(finding.path.as_deref(), Some(&b"a"[..]), "{finding:?}");
            assert_eq!(finding.length, finding.blocks * BLOCK);
            assert_eq!(finding.version_count, finding.versions.len() as u64);
            let (inode, offset) = finding.file.unwrap();
            assert_eq!(inode, file.0);
            (offset / BLOCK, finding.blocks, finding.versions.join(" "))
        })
        .collect();
    said.sort();
    let both = || "db db@s".to_owned();
    assert_eq!(said, [(64, 36, both()), (100, 10, "db@s".to_owned()), (110, 82, both())]);
    // Where the first of it lies.
    let (segment, offset) = corrupt[0];
    let first = report.findings.iter().find(|finding| finding.file == Some((file.0, 64 * BLOCK))).unwrap();
    assert!(first.damage.contains(&format!("{} at offset {offset}:", file_name(segment))), "{first:?}");
    assert!(first.sentence().ends_with(", and 35 blocks more"), "{}", first.sentence());
}

#[test]
fn what_is_not_listed_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, file) = made(folder.path(), 2300);
    flip(folder.path(), &places(&pool, file, (0..2200).step_by(2)));
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.findings.len(), report.unlisted()), (1100, 1000, 100));
    assert!(report.findings.iter().all(|finding| finding.blocks == 1 && finding.length == BLOCK));
}

/// More damage than is remembered, and a scrub that is cut off amid it.
#[test]
fn a_scrub_that_goes_on_counts_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, file) = made(folder.path(), 4000);
    flip(folder.path(), &places(&pool, file, (0..4000).step_by(2)));
    const { assert!(2000 > ENTRIES_MAX) };
    let kept = ScrubOptions { keeps_position: true, ..ScrubOptions::default() };
    let cut = pool.scrub_with(&kept, &mut |now| now.damaged < 1700).unwrap();
    assert!(!cut.complete && cut.damaged < 2000, "{cut:?}");
    let rest = pool.scrub_with(&kept, &mut |_| true).unwrap();
    assert!(rest.resumed.is_some() && rest.complete);
    assert_eq!((rest.damaged, rest.unlisted()), (2000, 1000));
}

#[test]
fn many_snapshots_in_a_row_are_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, file) = made(folder.path(), 16);
    for index in 0..40 {
        pool.dataset("db").unwrap().write(file, 0, &[index; BLOCK_BYTES]).unwrap();
        pool.snapshot(&[format!("db@s{index}")], false, &[]).unwrap();
    }
    pool.clone_snapshot("db@s30", "other", false).unwrap();
    let corrupt = places(&pool, file, 3..5);
    pool.checkpoint().unwrap();
    flip(folder.path(), &corrupt);
    let names_of = |pool: &Pool| {
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.findings.len()), (2, 1), "{report:?}");
        (report.findings[0].versions.clone(), report.findings[0].version_count)
    };
    let (names, count) = names_of(&pool);
    assert_eq!((names.join(" "), count), ("db db@s0%s39 other".to_owned(), 42));
    pool.destroy(&DestroyTarget::Snapshot("db@s20".to_owned())).unwrap();
    let (names, count) = names_of(&pool);
    assert_eq!((names.join(" "), count), ("db db@s0%s39 other".to_owned(), 41));
    // It names the versions that see it in the form in which a destroy takes them.
    let all =
        DestroyTarget::Range { dataset: "db".to_owned(), first: "s31".to_owned(), last: "s39".to_owned() };
    pool.destroy(&all).unwrap();
    // Until then they are on their way.
    pool.engine().finish_freeing().unwrap();
    let (names, count) = names_of(&pool);
    assert_eq!((names.join(" "), count), ("db db@s0%s30 other".to_owned(), 32));
}

/// Nodes of a tree that lead to neighbouring places in a file.
#[test]
fn nodes_beside_each_other_are_reported_as_one() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions::small()).unwrap();
    let pool = open(folder.path());
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for block in (0..3000).rev() {
        db.write(file, block * 2 * BLOCK, &[7; BLOCK_BYTES]).unwrap();
    }
    drop(db);
    pool.checkpoint().unwrap();
    let view = pool.view("db").unwrap();
    let mut leaves = Vec::new();
    view.tree()
        .nodes(&*pool.engine().nodes, &mut |address, node| {
            if node.items().next().is_some() {
                leaves.push(address);
            }
            Ok(())
        })
        .unwrap();
    assert!(leaves.len() > 3, "{}", leaves.len());
    let engine = pool.engine();
    let place = |address: &LogAddress| {
        let (segment, slot, _) = engine.blocks.locate(Stream::Node, *address).unwrap();
        (segment, engine.geometry.offset(slot))
    };
    let corrupt: Vec<_> = leaves[1..3].iter().map(place).collect();
    assert!(corrupt.iter().all(|(segment, _)| *segment == corrupt[0].0));
    flip(folder.path(), &corrupt);
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.findings.len()), (2, 1), "{report:?}");
    let finding = &report.findings[0];
    assert_eq!((finding.blocks, finding.file, &finding.versions[..]), (2, None, &["db".to_owned()][..]));
    let hidden = finding.hides.as_deref().unwrap();
    assert!(hidden.starts_with("bytes ") && hidden.ends_with(&format!("of a (inode {file})")), "{hidden}");
}
