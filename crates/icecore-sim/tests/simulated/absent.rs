//! Segments that are gone, wholly or in part, or that are what they were some time ago, in pools that were
//! closed. Everything else is there and goes on, and what is lost is never shown as something else.

use crate::common::{
    Context, SEGMENT, assert_named, draw_copies_and_limit, for_each_seed, is_long, must, open,
};
use icecore::storage::Kind;
use icecore::{CopyMode, DestroyTarget, Error};
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::model::Step;
use icecore_sim::remains::Remains;
use icecore_sim::{CrashMode, Random};
use std::collections::BTreeMap;

/// Rounds of life after the loss.
const ROUNDS: usize = 3;
/// Writes after which a pool is full at the latest.
const FILLERS_MAX: usize = 400;

fn setting(seed: u64, random: &mut Random) -> Setting {
    let mut setting = Setting::draw(seed);
    setting.segment_bytes = SEGMENT;
    setting.weights.write_bytes_max = 64 << 10;
    setting.weights.far_percent = 0;
    setting.weights.snapshot = 6;
    draw_copies_and_limit(&mut setting, random);
    setting
}

/// Lives on. What the loss or the size limit keeps from being done is left.
fn live(explorer: &mut Explorer, steps: usize) -> u64 {
    let mut refused = 0;
    for _ in 0..steps {
        match must(explorer.step()) {
            Verdict::Agreed => {}
            Verdict::Failed(Error::Damaged { .. } | Error::NoSpace { .. }) if explorer.is_open() => {
                let failure = explorer.pool().statistics().failure;
                assert!(failure.is_none(), "{failure:?}\n  {}", explorer.recent());
                refused += 1;
            }
            other => panic!("{other:?}\n  {}", explorer.recent()),
        }
    }
    refused
}

/// A pool that was closed after several lives.
fn closed(seed: u64, setting: &Setting) -> Explorer {
    let mut explorer = Explorer::new(seed, setting).unwrap();
    for _ in 0..2 {
        explorer.open().unwrap();
        live(&mut explorer, 100);
        explorer.close().unwrap();
    }
    explorer
}

/// The segment that the newest ledger lies in.
fn ledger(explorer: &Explorer) -> String {
    let block = explorer.disk.contents("superblock.0").unwrap();
    format!("segment.{:08}", u32::from_le_bytes(block[88..92].try_into().unwrap()))
}

/// The segments with something in them that is not zeros.
fn in_use(explorer: &Explorer) -> Vec<String> {
    let files = explorer.disk.files().into_iter().map(|(name, _)| name);
    let segments = files.filter(|name| name.starts_with("segment."));
    let is_used = |name: &String| explorer.disk.contents(name).unwrap()[4096..].iter().any(|byte| *byte != 0);
    segments.filter(is_used).collect()
}

fn remains(explorer: &Explorer) -> Remains {
    match Remains::of(explorer.pool(), explorer.history.current()) {
        Ok(remains) => remains,
        Err(difference) => panic!("{difference}\n  {}", explorer.recent()),
    }
}

/// Opened again, the pool shows what it did.
fn assert_same(after: &Remains, before: &Remains) {
    let more: Vec<_> = after.lost.difference(&before.lost).collect();
    let less: Vec<_> = before.lost.difference(&after.lost).collect();
    assert!(after == before, "now {more:?} is lost, and {less:?} is not: {} {}", after.blocks, before.blocks);
}

fn assert_all_named(explorer: &Explorer, remains: &Remains) {
    let report = assert_named(explorer, remains);
    assert!(!remains.lost.is_empty() || report.complete, "{report:?}");
}

fn destroy_snapshots(explorer: &mut Explorer) {
    let names: Vec<String> = explorer.history.current().named_snapshots().map(|(name, _)| name).collect();
    for name in names {
        match must(explorer.perform(Step::Destroy(DestroyTarget::Snapshot(name.clone())))) {
            Verdict::Agreed => {}
            Verdict::Failed(Error::Damaged { .. }) => {}
            other => panic!("{name}: {other:?}\n  {}", explorer.recent()),
        }
    }
}

/// What lay in the lost segment goes, all of it: the pool is as good as any other then.
fn destroy_all(explorer: &mut Explorer) -> bool {
    for _ in 0..6 {
        destroy_snapshots(explorer);
        let names: Vec<String> = explorer.history.current().datasets().keys().rev().cloned().collect();
        for name in names {
            let target = DestroyTarget::Dataset { name, recursive: true };
            match must(explorer.perform(Step::Destroy(target))) {
                Verdict::Agreed => {}
                other => panic!("{other:?}\n  {}", explorer.recent()),
            }
        }
    }
    explorer.history.current().datasets().is_empty()
}

/// Goes on with what is left, through closings and crashes.
fn goes_on(explorer: &mut Explorer, random: &mut Random, outcomes: &mut BTreeMap<String, u64>) {
    for round in 0..ROUNDS {
        let _context = Context(format!("round {round}"));
        let refused = live(explorer, 40);
        *outcomes.entry("steps refused".to_owned()).or_default() += refused;
        match random.below(4) {
            0 => destroy_snapshots(explorer),
            1 => {
                let step = Step::Collect { segments: 4, checkpoint: random.chance(50) };
                let verdict = must(explorer.perform(step));
                let allowed = matches!(
                    verdict,
                    Verdict::Agreed | Verdict::Failed(Error::Damaged { .. } | Error::NoSpace { .. })
                );
                assert!(allowed, "{verdict:?}");
            }
            _ => {}
        }
        let before = remains(explorer);
        if random.chance(50) {
            explorer.close().unwrap();
            open(explorer);
            assert_same(&remains(explorer), &before);
        } else if random.chance(50) {
            explorer.pool().sync().unwrap();
            explorer.history.acknowledge();
            explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
            open(explorer);
            assert_same(&remains(explorer), &before);
        }
        let picture = remains(explorer);
        assert_all_named(explorer, &picture);
    }
}

/// The file turns up again, as it was when it went.
fn put_back(explorer: &mut Explorer, base: &Explorer, name: &str) {
    open(explorer);
    let before = remains(explorer);
    explorer.close().unwrap();
    let bytes = base.disk.contents(name).unwrap();
    let there = explorer.disk.contents(name).ok();
    if there.as_ref().is_none_or(|there| there.len() < bytes.len()) {
        let storage = explorer.disk.storage();
        if there.is_some() {
            storage.remove(name).unwrap();
        }
        let file = storage.create(name, bytes.len() as u64).unwrap();
        file.write_at(&[(Kind::Data, &bytes)], 0).unwrap();
        file.sync().unwrap();
        storage.sync_directory().unwrap();
    }
    open(explorer);
    let after = remains(explorer);
    assert!(after.lost.is_subset(&before.lost), "{after:?} instead of {before:?}");
    assert_all_named(explorer, &after);
}

/// Writes until the pool is full, or has taken a lot.
fn fill(explorer: &mut Explorer) {
    let pool = explorer.pool();
    pool.create_dataset("filler", false, &[]).unwrap();
    let dataset = pool.dataset("filler").unwrap();
    let file = dataset.open_or_create(b"f", &icecore::Creation::file()).unwrap();
    let mut at = 0;
    for _ in 0..FILLERS_MAX {
        match dataset.write_durable(file, at, &[7; 128 << 10]) {
            Ok(()) => at += 128 << 10,
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(at >= 4 << 20, "there is room for {at} bytes: {:?}", pool.statistics());
    let mut bytes = vec![0; at as usize];
    dataset.view().unwrap().read(file, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
    drop(dataset);
    pool.destroy(&DestroyTarget::Dataset { name: "filler".to_owned(), recursive: true }).unwrap();
}

/// Opens a pool with a damaged segment, and looks at what is lost. The opening may fail where that segment
/// has the newest ledger and there is no copy.
fn open_damaged(explorer: &mut Explorer, is_ledger: bool, copies: CopyMode) -> &'static str {
    if let Err(error) = explorer.open() {
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        assert!(is_ledger && copies == CopyMode::None, "{error}");
        return "without its ledger";
    }
    let found = remains(explorer);
    assert!(found.lost.is_empty() || copies != CopyMode::All, "{:?}", found.lost);
    assert_all_named(explorer, &found);
    if found.lost.is_empty() { "nothing lost" } else { "something lost" }
}

/// So many times a loss, to a pool that follows from the seed.
fn lose(seed: u64, losses: usize, outcomes: &mut BTreeMap<String, u64>) {
    let mut random = Random::new(seed);
    let setting = setting(seed, &mut random);
    let base = closed(seed, &setting);
    let files: Vec<_> = base.disk.files();
    let used = in_use(&base);
    let segments: Vec<_> = files.iter().filter(|(name, _)| used.contains(name)).collect();
    for _ in 0..losses {
        let (name, length) = (*random.pick(&segments).unwrap()).clone();
        let left = [None, Some(0), Some(random.below(length)), Some(length - 512)][random.index(4)];
        let _context =
            Context(format!("{name} cut to {left:?}, {:?}, {:?}", setting.copies, setting.size_limit));
        let mut explorer = base.fork(random.next());
        match left {
            None => explorer.disk.lose(&name).unwrap(),
            Some(length) => explorer.disk.truncate(&name, length).unwrap(),
        }
        let sort = open_damaged(&mut explorer, name == ledger(&base), setting.copies);
        *outcomes.entry(sort.to_owned()).or_default() += 1;
        if !explorer.is_open() {
            continue;
        }
        goes_on(&mut explorer, &mut random, outcomes);
        if random.chance(50) {
            explorer.close().unwrap();
            put_back(&mut explorer, &base, &name);
            *outcomes.entry("put back".to_owned()).or_default() += 1;
        }
        if destroy_all(&mut explorer) {
            explorer.close().unwrap();
            open(&mut explorer);
            // Books that lie in what is left of it stay there.
            match explorer.pool().verify() {
                Ok(()) => {}
                Err(Error::Damaged { place, .. }) if place == name => {}
                Err(error) => panic!("{error}"),
            }
            fill(&mut explorer);
            *outcomes.entry("emptied and filled".to_owned()).or_default() += 1;
        }
        explorer.close().unwrap();
        open(&mut explorer);
        assert_all_named(&explorer, &remains(&explorer));
    }
}

#[test]
fn what_is_not_in_a_lost_segment_is_there_and_goes_on() {
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for_each_seed("absent", 4, |seed| lose(seed, if is_long() { 12 } else { 4 }, &mut outcomes));
    println!("{outcomes:#?}");
    assert!(is_long() || outcomes.contains_key("something lost"), "{outcomes:?}");
}

/// So many times a segment is put back as it was before the last life of the pool. The pool follows from the
/// seed.
fn put_former(seed: u64, times: usize, outcomes: &mut BTreeMap<String, u64>) {
    let mut random = Random::new(seed);
    let setting = setting(seed, &mut random);
    let mut base = closed(seed, &setting);
    let former: BTreeMap<String, Vec<u8>> = base
        .disk
        .files()
        .into_iter()
        .map(|(name, _)| (name.clone(), base.disk.contents(&name).unwrap()))
        .collect();
    open(&mut base);
    live(&mut base, 200);
    base.close().unwrap();
    let is_other =
        |name: &String| former.get(name).is_some_and(|bytes| *bytes != base.disk.contents(name).unwrap());
    let changed: Vec<String> = in_use(&base).into_iter().filter(is_other).collect();
    for _ in 0..if changed.is_empty() { 0 } else { times } {
        let name = random.pick(&changed).unwrap().clone();
        let _context = Context(format!("{name} as it was, {:?}, {:?}", setting.copies, setting.size_limit));
        let mut explorer = base.fork(random.next());
        explorer.disk.overwrite(&name, 0, &former[&name]).unwrap();
        let sort = open_damaged(&mut explorer, name == ledger(&base), setting.copies);
        *outcomes.entry(sort.to_owned()).or_default() += 1;
        if !explorer.is_open() {
            continue;
        }
        goes_on(&mut explorer, &mut random, outcomes);
        explorer.close().unwrap();
        open(&mut explorer);
        assert_all_named(&explorer, &remains(&explorer));
    }
}

#[test]
fn a_segment_that_is_what_it_was_some_time_ago_is_reported() {
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for_each_seed("former", 4, |seed| put_former(seed, if is_long() { 12 } else { 3 }, &mut outcomes));
    println!("{outcomes:#?}");
    assert!(is_long() || outcomes.contains_key("something lost"), "{outcomes:?}");
}

/// The log goes on where a chunk of the location map says that it does, and that chunk is gone.
#[test]
fn what_is_written_after_a_piece_of_the_location_map_was_lost_is_there() {
    lose(500, 12, &mut BTreeMap::new());
}

/// Where the log would go on in a lost segment it goes on in a new one. That has to be there after a crash as
/// soon as anything says so.
#[test]
fn a_log_that_goes_on_in_a_new_segment_is_there_after_any_crash() {
    let base = closed(77, &setting(77, &mut Random::new(77)));
    let mut crashes = 0;
    for name in in_use(&base).into_iter().filter(|name| *name != ledger(&base)) {
        for number in 1.. {
            let mut explorer = base.fork(number);
            explorer.disk.lose(&name).unwrap();
            explorer.disk.crash_at(number);
            // As far as it comes.
            let _ = explorer.open();
            let cut = explorer.disk.is_cut();
            explorer.crash(Some(CrashMode::None));
            open(&mut explorer);
            crashes += 1;
            if !cut {
                break;
            }
        }
    }
    assert!(crashes > 30, "{crashes}");
}
