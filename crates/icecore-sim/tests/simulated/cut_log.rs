//! Logs that are damaged before their end. Opening shows what was acknowledged, or refuses. A repair with the
//! option to cut the log brings back one moment of the past, whole, and what it gave up never comes back.

use crate::common::{
    Context, SEGMENT, assert_named, draw_copies_and_limit, for_each_seed, is_long, must, open,
};
use icecore::Error;
use icecore::check::{RepairOptions, RepairReport, repair};
use icecore::format::record::RecordView;
use icecore_sim::driver::Picture;
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::model::{ModelPool, Step};
use icecore_sim::remains::Remains;
use icecore_sim::{CrashMode, Random};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const BLOCK: u64 = 4096;

fn setting(seed: u64, random: &mut Random) -> Setting {
    let mut setting = Setting::draw(seed);
    setting.segment_bytes = SEGMENT;
    setting.weights.write_bytes_max = [8 << 10, 64 << 10, 256 << 10][random.index(3)];
    setting.weights.far_percent = 0;
    setting.weights.checkpoint = 1;
    setting.weights.collect = 3;
    setting.weights.reopen = 1;
    setting.weights.sync = 12;
    setting.weights.snapshot = 6;
    draw_copies_and_limit(&mut setting, random);
    setting
}

/// A pool, and what of its past is certain.
struct Life {
    explorer: Explorer,
    /// The state at the last checkpoint, or one before it.
    floor: usize,
    /// The newest record at the last checkpoint.
    since: u64,
    /// What was acknowledged before the last flush: later ones say so.
    certain: usize,
    checkpoints: u64,
    flushes: u64,
}

impl Life {
    fn begin(seed: u64, setting: &Setting) -> Self {
        let explorer = Explorer::new(seed, setting).unwrap();
        let mut life = Self { explorer, floor: 0, since: 0, certain: 0, checkpoints: 0, flushes: 0 };
        life.explorer.open().unwrap();
        life.settle();
        life
    }

    /// The pool was opened just now: what is there is certain.
    fn settle(&mut self) {
        let statistics = self.explorer.pool().statistics();
        (self.checkpoints, self.flushes) = (statistics.checkpoints, statistics.flushes);
        self.floor = self.explorer.history.length() - 1;
        self.certain = self.floor;
        self.since = self.newest();
    }

    fn fork(&self, seed: u64) -> Self {
        Self { explorer: self.explorer.fork(seed), ..*self }
    }

    fn last(&self) -> usize {
        self.explorer.history.length() - 1
    }

    /// Lives on until the power fails, or so many steps.
    fn live(&mut self, steps: usize) {
        for _ in 0..steps {
            let (before, acknowledged) = (self.last(), *self.explorer.history.survivors().start());
            match must(self.explorer.step()) {
                Verdict::Agreed | Verdict::Failed(Error::NoSpace { .. }) => {}
                Verdict::Cut => return,
                other => panic!("{other:?}\n  {}", self.explorer.recent()),
            }
            let statistics = self.explorer.pool().statistics();
            if statistics.checkpoints != self.checkpoints {
                self.checkpoints = statistics.checkpoints;
                self.floor = before;
                self.since = self.newest();
            }
            if statistics.flushes != self.flushes {
                self.flushes = statistics.flushes;
                self.certain = acknowledged;
            }
        }
    }

    /// Of several damaged places, one may be what says that the other was durable.
    fn doubt(&mut self, places: usize) {
        if places > 1 {
            self.certain = self.floor;
        }
    }

    /// All records of the log that are on disk: file, offset, blocks and number.
    fn records(&self) -> Vec<(String, u64, u64, u64)> {
        let mut found = Vec::new();
        for (name, _) in self.explorer.disk.files() {
            if !name.starts_with("segment.") {
                continue;
            }
            let bytes = self.explorer.disk.contents(&name).unwrap();
            for (index, block) in bytes.chunks_exact(BLOCK as usize).enumerate() {
                if let Some(view) = RecordView::decode(block).filter(|view| !view.header.run) {
                    let blocks = 1 + view.sums.len() as u64;
                    found.push((name.clone(), index as u64 * BLOCK, blocks, view.header.sequence.0));
                }
            }
        }
        found
    }

    fn newest(&self) -> u64 {
        self.records().into_iter().map(|(.., number)| number).max().unwrap_or(0)
    }

    /// The program is killed, or the power fails, between two steps or within one. False if the test cannot
    /// know what the last step was.
    fn end(&mut self, random: &mut Random) -> bool {
        match random.below(3) {
            0 => self.explorer.crash(None),
            1 => self.explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)])),
            _ => {
                self.explorer.disk.crash_at(random.between(1, 60));
                self.live(40);
                self.explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
                // The name of what a rollback saved is not known then.
                return !matches!(self.explorer.history.step(self.last()), Some(Step::Rollback { .. }));
            }
        }
        true
    }
}

fn contents(explorer: &Explorer) -> Vec<(String, Vec<u8>)> {
    let files = explorer.disk.files().into_iter();
    files.map(|(name, _)| (name.clone(), explorer.disk.contents(&name).unwrap())).collect()
}

fn segments_of(contents: &[(String, Vec<u8>)]) -> Vec<&(String, Vec<u8>)> {
    contents.iter().filter(|(name, _)| name.starts_with("segment.") || name.starts_with("copy.0")).collect()
}

/// Damages the log since the last checkpoint; answers how. `None` if there is none.
fn corrupt(life: &Life, random: &mut Random) -> Option<(String, usize)> {
    let targets: Vec<_> = life.records().into_iter().filter(|(.., number)| *number > life.since).collect();
    let disk = &life.explorer.disk;
    let mut places_hit = Vec::new();
    for _ in 0..[1, 1, 2][random.index(3)] {
        let (name, offset, blocks, number) = random.pick(&targets)?.clone();
        let Some((_, length)) = disk.files().into_iter().find(|(found, _)| *found == name) else { continue };
        let sort = random.below(10);
        let at = if sort < 5 { offset } else { offset + random.below(blocks) * BLOCK };
        match sort {
            0..7 => {
                if at + BLOCK <= length {
                    disk.corrupt(&name, at..at + BLOCK).unwrap();
                    places_hit.push(format!("{name} at {at} (record {number} at {offset})"));
                }
            }
            7 => {
                disk.lose(&name).unwrap();
                places_hit.push(format!("{name} is lost (record {number} was in it)"));
            }
            _ => {
                let left = [0, at, random.below(length.max(1))][random.index(3)].min(length);
                disk.truncate(&name, left).unwrap();
                places_hit.push(format!("{name} is cut to {left} (record {number} at {offset})"));
            }
        }
    }
    Some((places_hit.join(", "), places_hit.len()))
}

/// The states that what can be read may be, newest first, and what cannot be read.
fn states(explorer: &Explorer, among: RangeInclusive<usize>) -> (Vec<usize>, Remains) {
    let (mut found, mut remains, mut differences) = (Vec::new(), Remains::default(), Vec::new());
    for index in among.rev() {
        match Remains::of(explorer.pool(), explorer.history.state(index).unwrap()) {
            Ok(same) => {
                if found.is_empty() {
                    remains = same;
                }
                found.push(index);
            }
            Err(difference) => differences.push(format!("state {index}: {difference}")),
        }
    }
    let said = || format!("{}\n  {}", differences.join("\n    "), explorer.recent());
    assert!(!found.is_empty(), "what is shown was never there:\n    {}", said());
    (found, remains)
}

/// History goes on from the state that was found.
fn go_back(explorer: &mut Explorer, found: &[usize], remains: &Remains) -> usize {
    let mut index = found[0];
    if remains.lost.is_empty() {
        let picture = Picture::take(explorer.pool()).unwrap();
        let same = |index: &&usize| picture.difference(explorer.history.state(**index).unwrap()).is_none();
        index = *found.iter().find(same).expect("one of them is the same in every way");
        explorer.history.go_back(index);
        let mut model = ModelPool::clone(explorer.history.current());
        picture.tell_names(&mut model);
        explorer.history.amend(model);
    } else {
        explorer.history.go_back(index);
    }
    index
}

fn options(cut_log: bool, dry_run: bool) -> RepairOptions {
    RepairOptions { cut_log, dry_run, data: true, ..RepairOptions::default() }
}

fn repaired(explorer: &Explorer, options: &RepairOptions) -> RepairReport {
    repair(explorer.disk.storage(), options, &mut |_| {}).unwrap()
}

/// Repairs, maybe not at once: the power may fail meanwhile.
fn repaired_in_the_end(explorer: &mut Explorer, random: &mut Random) -> RepairReport {
    if random.chance(40) {
        explorer.disk.crash_at(random.between(1, 60));
        let outcome = repair(explorer.disk.storage(), &options(true, false), &mut |_| {});
        if !explorer.disk.is_cut() {
            explorer.crash(Some(CrashMode::All));
            return outcome.unwrap();
        }
        explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
    }
    repaired(explorer, &options(true, false))
}

/// Opens a damaged pool, and repairs it if it has to be. Answers what came of it; the pool is open, unless
/// nothing helps.
fn examine(life: &mut Life, random: &mut Random) -> (&'static str, bool) {
    let explorer = &mut life.explorer;
    let last = explorer.history.length() - 1;
    let before = contents(explorer);
    let mut sort = "opened";
    let mut among = life.certain..=last;
    if let Err(error) = explorer.open() {
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        explorer.crash(None);
        assert!(contents(explorer) == before, "{error}: refusing to open changed something");
        let plain = repaired(explorer, &options(false, false));
        sort = "repaired";
        if !plain.after.opened {
            let is_superblock = |step: &String| step.starts_with("superblock");
            assert!(plain.steps.iter().all(is_superblock), "{plain:?}");
            let same = segments_of(&contents(explorer)) == segments_of(&before);
            assert!(
                same && (contents(explorer) == before || !plain.steps.is_empty()),
                "{plain:?}: what was written?"
            );
            let before = contents(explorer);
            let planned = repaired(explorer, &options(true, true));
            assert!(contents(explorer) == before, "a dry run wrote something");
            let report = repaired_in_the_end(explorer, random);
            if !report.after.opened && !planned.after.opened {
                assert!(contents(explorer) == before && !report.refused.is_empty(), "{report:?}");
                println!("cannot be cut: {:?}", report.refused);
                return ("cannot be cut", false);
            }
            assert!(report.after.opened, "{planned:?}, and then {report:?}");
            assert_sound(explorer, &report);
            sort = "cut";
            among = life.floor..=last;
        }
        if let Err(error) = explorer.open() {
            panic!("it was repaired, and does not open: {error}");
        }
    }
    let (found, remains) = states(explorer, among);
    let unique = found.len() == 1;
    let index = go_back(explorer, &found, &remains);
    assert!(index >= life.floor);
    life.settle();
    let explorer = &mut life.explorer;
    assert_named(explorer, &remains);
    if remains.lost.is_empty() {
        must(explorer.check());
        goes_on(life, random);
    } else {
        goes_on_with_losses(explorer, random, unique);
        return (if sort == "cut" { "cut, with losses" } else { "opened, with losses" }, false);
    }
    (sort, true)
}

/// What a repair says is lost is lost, and nothing else.
fn assert_sound(explorer: &mut Explorer, report: &RepairReport) {
    let again = repaired(explorer, &options(false, false));
    assert!(again.before.opened, "{again:?}");
    assert_eq!(again.after.is_sound(), report.after.is_sound(), "{report:?}, and then {again:?}");
}

/// More life, which ends in a crash, and so on: nothing that was given up comes back.
fn goes_on(life: &mut Life, random: &mut Random) {
    for round in 0..2 {
        let _context = Context(format!("round {round} after it"));
        life.live(30);
        life.explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
        open(&mut life.explorer);
        must(life.explorer.find());
        life.settle();
        must(life.explorer.check());
    }
    if random.chance(30) {
        life.explorer.close().unwrap();
        open(&mut life.explorer);
        must(life.explorer.check());
        life.settle();
    }
}

/// As [`goes_on`], where something is lost; if the present is known, things are done.
fn goes_on_with_losses(explorer: &mut Explorer, random: &mut Random, is_known: bool) {
    for round in 0..2 {
        let _context = Context(format!("round {round} after it, with losses"));
        for _ in 0..if is_known { 20 } else { 0 } {
            match must(explorer.step()) {
                Verdict::Agreed | Verdict::Failed(Error::NoSpace { .. } | Error::Damaged { .. }) => {}
                other => panic!("{other:?}\n  {}", explorer.recent()),
            }
        }
        explorer.pool().sync().unwrap();
        explorer.history.acknowledge();
        let last = explorer.history.length() - 1;
        let (_, before) = states(explorer, last..=last);
        explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
        open(explorer);
        let (_, after) = states(explorer, last..=last);
        assert_eq!(after, before, "{}", explorer.recent());
    }
    explorer.close().unwrap();
    open(explorer);
    let last = explorer.history.length() - 1;
    let (_, remains) = states(explorer, last..=last);
    assert_named(explorer, &remains);
}

#[test]
fn a_log_that_is_damaged_ends_at_a_moment_of_the_past_and_nothing_comes_back() {
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for_each_seed("cut_log", 4, |seed| {
        let mut random = Random::new(seed);
        let setting = setting(seed, &mut random);
        let _context = Context(format!("{:?}, {:?}", setting.copies, setting.size_limit));
        let mut base = Life::begin(seed, &setting);
        for _ in 0..random.below(3) {
            base.live(60);
            base.end(&mut random);
            open(&mut base.explorer);
            must(base.explorer.find());
            base.settle();
        }
        base.live(random.between(60, 150) as usize);
        if !base.end(&mut random) {
            return;
        }
        for case in 0..if is_long() { 10 } else { 4 } {
            let mut life = base.fork(random.next());
            let Some((said, count)) = corrupt(&life, &mut random) else {
                *outcomes.entry("no log").or_default() += 1;
                break;
            };
            let _context = Context(format!("case {case}: {said}"));
            life.doubt(count);
            let (sort, is_whole) = examine(&mut life, &mut random);
            *outcomes.entry(sort).or_default() += 1;
            // And once more.
            if is_whole {
                life.live(40);
                let is_known = life.end(&mut random);
                if let Some((said, count)) = corrupt(&life, &mut random).filter(|_| is_known) {
                    let _context = Context(format!("and then {said}"));
                    life.doubt(count);
                    *outcomes.entry(examine(&mut life, &mut random).0).or_default() += 1;
                }
            }
            life.explorer.crash(None);
        }
    });
    println!("{outcomes:#?}");
    assert!(is_long() || outcomes.contains_key("cut") && outcomes.contains_key("opened"), "{outcomes:?}");
}
