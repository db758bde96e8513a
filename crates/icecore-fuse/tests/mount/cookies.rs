//! Places in a large directory, as telldir(3) and getdents(2) know them.

use crate::fixture::{Fixture, can_mount};
use icecore::units::InodeNumber;
use icecore::{Creation, OpenOptions, Pool};
use rustix::fs::{RawDir, SeekFrom};
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::mem::MaybeUninit;

/// Entries: 20,000, or `ICECORE_ENTRIES`.
fn wanted() -> usize {
    let entries = std::env::var("ICECORE_ENTRIES");
    entries.map_or(20_000, |entries| entries.parse().expect("ICECORE_ENTRIES is a number"))
}

/// What getdents(2) answers from the place of a directory on, until there is nothing more or `most` entries:
/// names, and the place behind each.
fn entries(directory: &File, most: usize) -> Vec<(CString, u64)> {
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut raw = RawDir::new(directory, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            found.push((name, entry.next_entry_cookie()));
        }
        if found.len() == most {
            break;
        }
    }
    found
}

fn go_to(directory: &File, place: u64) {
    rustix::fs::seek(directory, SeekFrom::Start(place)).unwrap();
}

fn fill(fixture: &Fixture, count: usize) {
    let pool = Pool::open_directory(&fixture.pool(), &OpenOptions::default()).unwrap();
    let dataset = pool.dataset("db").unwrap();
    for number in 0..count {
        dataset.create(InodeNumber::ROOT, number.to_string().as_bytes(), &Creation::file()).unwrap();
    }
    pool.close().unwrap();
}

#[test]
fn places_in_a_directory_hold_while_entries_go() {
    if !can_mount() {
        return;
    }
    let count = wanted();
    let mut fixture = Fixture::unmounted(None);
    fill(&fixture, count);
    fixture.mount(Some("db"));
    let directory = File::open(fixture.path(".")).unwrap();
    let all = entries(&directory, usize::MAX);
    assert_eq!(all.len(), count);
    assert_eq!(all.iter().map(|(_, place)| place).collect::<HashSet<_>>().len(), count);

    // In pieces, each from the place behind the last, while every third entry goes. Those that stay are seen
    // once, in the same order.
    let stays = |index: &usize| !index.is_multiple_of(3);
    go_to(&directory, 0);
    let mut seen = Vec::new();
    let mut removed = 0;
    loop {
        let piece = entries(&directory, 1000);
        let Some((_, place)) = piece.last() else { break };
        go_to(&directory, *place);
        seen.extend(piece);
        // Some of them are behind the place, and some before it.
        let until = (seen.len() + 500).min(count);
        for index in (removed..until).filter(|index| !stays(index)) {
            fs::remove_file(fixture.path(all[index].0.to_str().unwrap())).unwrap();
        }
        removed = until.max(removed);
    }
    let left: Vec<_> = (0..count).filter(stays).map(|index| &all[index]).collect();
    let gone: HashSet<_> = (0..count).filter(|index| !stays(index)).map(|index| &all[index].0).collect();
    let seen_left: Vec<_> = seen.iter().filter(|(name, _)| !gone.contains(name)).collect();
    assert!(seen_left == left, "{} seen of {}", seen_left.len(), left.len());

    // A place behind an entry is where its successor is, whether the entry is there or not, also for one who
    // opens the directory anew.
    let anew = File::open(fixture.path(".")).unwrap();
    for index in (0..count - 3).step_by(count / 200) {
        go_to(&anew, all[index].1);
        let next = (index + 1..count).find(stays).unwrap();
        assert_eq!(entries(&anew, 1), [all[next].clone()], "behind entry {index}");
    }
}
