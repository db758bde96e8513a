//! `full`: a store of snapshots that runs full. What happens to the data, the snapshots and the writer?
//!
//! A file is updated at random in durable groups, with a snapshot after each quarter of it, until the system
//! refuses. The system is then mounted again, and all that it acknowledged is compared: each block of the
//! file and of each snapshot.

use super::blocks::{self, BLOCK_BYTES, Blocks, Write, is_full};
use super::{Bench, Lineup, Needs};
use crate::driving;
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::random::Random;
use crate::report::{Check, System as Measured};
use crate::statistics::{bootstrap, median};
use crate::systems::{Areas, Kind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Blocks that become durable together.
const GROUP: u64 = 64;
/// Every one of these systems is held to lose nothing.
const SUBJECTS: [&str; 2] = ["icecore-mount", "icecore-sqlite"];

/// Whether a system refused anything before its time was up. Older results do not say.
pub(crate) const REFUSED: &str = "refused";

/// How much is done.
struct Scope {
    device_bytes: u64,
    /// Where pools of Icecore end.
    limit_bytes: u64,
    blocks: u64,
    patience: Duration,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let toy = cfg!(debug_assertions);
        Self {
            device_bytes: options.size(2 << 30, 400 << 20),
            limit_bytes: options.size(3 << 29, if toy { 64 << 20 } else { 300 << 20 }),
            blocks: options.size(16_384, if toy { 512 } else { 4_096 }),
            // In an emulated machine a quick run takes minutes, too.
            patience: options.size(Duration::from_secs(600), Duration::from_secs(if toy { 60 } else { 240 })),
        }
    }
}

impl Scope {
    /// Areas smaller than the file, as is usual: they run full first.
    fn areas(&self) -> Areas {
        Areas { count: 8, bytes: self.blocks * BLOCK_BYTES as u64 / 5 * 2 }
    }
}

/// What one system did.
struct Outcome {
    /// Acknowledged blocks and snapshots that are not what they have to be.
    lost: f64,
    /// What the system said when it was full.
    refusal: String,
    /// It refused something in time. What it loses when it is full is not known else.
    has_refused: bool,
    counters: BTreeMap<String, f64>,
}

/// Bytes that the study needs at the same time, without copy areas of LVM.
pub(crate) fn room(options: &Options) -> u64 {
    Scope::of(options).device_bytes
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let mut lineup = Lineup::of(options, Needs::Snapshots)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    lineup.require_room(room(options), scope.areas(), options)?;
    let outcomes = lineup.measure(rounds, options, |round, kind| {
        let mut bench =
            Bench::begin_limited(kind, scope.device_bytes, scope.limit_bytes, scope.areas(), options)?;
        let outcome = bench.attempt(kind, |bench| {
            let random = Random::new(options.seed + round as u64);
            Writer::begin(bench, kind, &scope, random)?.outcome(&scope, options)
        })?;
        options.say(&format!("  {}: lost {}, {}", kind.name, outcome.lost, outcome.refusal))?;
        Ok(outcome)
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "lost");
    let ours: Vec<&Outcome> = outcomes
        .iter()
        .filter(|(kind, _)| SUBJECTS.contains(&kind.name))
        .flat_map(|(_, outcomes)| outcomes)
        .collect();
    let were_full = ours.iter().all(|outcome| outcome.has_refused);
    let ours: Vec<f64> = ours.iter().map(|outcome| outcome.lost).collect();
    if !ours.is_empty() && were_full {
        // One loss is one too many: the worst round counts.
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        findings.check(Check::new("full.lost", bootstrap(&[worst(&ours)], median, options.seed)));
    }
    for (kind, outcomes) in &outcomes {
        let lost = outcomes.iter().map(|outcome| outcome.lost).collect();
        let mut counters = BTreeMap::new();
        for (name, value) in outcomes.iter().flat_map(|outcome| &outcome.counters) {
            *counters.entry(name.clone()).or_insert(0.0) += value / outcomes.len() as f64;
        }
        findings.system(kind.name, Measured::new("lost", lost).with_counters(counters));
        let refusals: Vec<&str> = outcomes.iter().map(|outcome| outcome.refusal.as_str()).collect();
        findings.parameter(&format!("refusal_of_{}", kind.name), refusals[0]);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("device_bytes", scope.device_bytes);
    findings.parameter("limit_bytes", scope.limit_bytes);
    findings.parameter("file_bytes", scope.blocks * BLOCK_BYTES as u64);
    findings.parameter("group_blocks", GROUP);
    driving::report(&mut findings, Some(blocks::driving_us()?));
    Ok(findings)
}

/// A writer that remembers what the system acknowledged.
struct Writer<'a> {
    bench: &'a mut Bench,
    kind: &'a Kind,
    random: Random,
    blocks: Blocks,
    /// The version of each block that is durable.
    acknowledged: Vec<u64>,
    /// Versions of a group that was refused: each of its blocks may have the one or the other.
    refused: BTreeMap<u64, u64>,
    snapshots: Vec<(String, Vec<u64>)>,
    version: u64,
    /// Blocks written and acknowledged.
    written: u64,
    longest: f64,
}

impl<'a> Writer<'a> {
    fn begin(bench: &'a mut Bench, kind: &'a Kind, scope: &Scope, random: Random) -> Result<Self> {
        let blocks = Blocks::create(&*bench.system, kind, scope.blocks)?;
        Ok(Self {
            bench,
            kind,
            random,
            blocks,
            acknowledged: vec![0; scope.blocks as usize],
            refused: BTreeMap::new(),
            snapshots: Vec::new(),
            version: 0,
            written: 0,
            longest: 0.0,
        })
    }

    fn outcome(mut self, scope: &Scope, options: &Options) -> Result<Outcome> {
        let begin = Instant::now();
        let refusal = loop {
            options.go_on()?;
            if begin.elapsed() > scope.patience {
                break None;
            }
            let name = format!("s{}", self.snapshots.len() + 1);
            if let Err(error) = self.bench.system.snapshot(&name) {
                break Some(("the snapshot", error));
            }
            self.snapshots.push((name, self.acknowledged.clone()));
            if let Err(error) = self.update_quarter(options) {
                break Some(("the write", error));
            }
        };
        let has_refused = refusal.is_some();
        let (full, mut refusal) = match refusal {
            None => (false, "its time was up before it was full".to_owned()),
            Some((_, Error::Stopped)) => return Err(Error::Stopped),
            Some((what, error)) => (is_full(&error), format!("{what} was refused: {error}")),
        };
        let mut counters: BTreeMap<String, f64> = [
            ("snapshots", self.snapshots.len() as f64),
            ("acknowledged_writes", self.written as f64),
            ("longest_gap_ms", self.longest * 1e3),
            ("said_full", f64::from(u8::from(full))),
            (REFUSED, f64::from(u8::from(has_refused))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let (blocks, snapshots) = match self.lost(options)? {
            Ok(lost) => lost,
            // What cannot be read is lost.
            Err(error) => {
                refusal = format!("{refusal}; it cannot be used again: {error}");
                (self.acknowledged.len() as f64, self.snapshots.len() as f64)
            }
        };
        counters.insert("lost_blocks".to_owned(), blocks);
        counters.insert("lost_snapshots".to_owned(), snapshots);
        let resumed = self.resume();
        counters.insert("resumed".to_owned(), f64::from(u8::from(resumed.is_ok())));
        Ok(Outcome { lost: blocks + snapshots, refusal, has_refused, counters })
    }

    fn update_quarter(&mut self, options: &Options) -> Result<()> {
        for _ in 0..self.acknowledged.len() as u64 / 4 / GROUP {
            options.go_on()?;
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        let count = self.acknowledged.len() as u64;
        let group: BTreeMap<u64, u64> = (0..GROUP)
            .map(|_| {
                self.version += 1;
                (self.random.below(count), self.version)
            })
            .collect();
        let writes: Vec<Write> = group.iter().map(|(number, version)| (*number, *version)).collect();
        let begin = Instant::now();
        let written = self.blocks.write(&writes);
        self.longest = self.longest.max(begin.elapsed().as_secs_f64());
        if written.is_err() {
            self.refused = group;
            return written;
        }
        self.written += writes.len() as u64;
        for (number, version) in writes {
            self.acknowledged[number as usize] = version;
        }
        Ok(())
    }

    /// Mounts the system again, and counts the blocks of the present and the snapshots that are not what they
    /// have to be. The inner error is that of the mount, or of the file in it.
    fn lost(&mut self, options: &Options) -> Result<Result<(f64, f64)>> {
        // Nothing of the system may be open while it is mounted again.
        self.blocks = Blocks::Table(rusqlite::Connection::open_in_memory()?);
        match self.bench.system.cool().and_then(|()| Blocks::open(&*self.bench.system, self.kind)) {
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => return Ok(Err(error)),
            Ok(blocks) => self.blocks = blocks,
        }
        let mut blocks = 0.0;
        for (number, version) in (0..).zip(&self.acknowledged) {
            options.go_on()?;
            let found = self.blocks.version(number).unwrap_or(None);
            let held =
                found == Some(*version) || (found.is_some() && found == self.refused.get(&number).copied());
            blocks += f64::from(u8::from(!held));
        }
        let mut snapshots = 0.0;
        for (name, versions) in &self.snapshots {
            options.go_on()?;
            let opened = Blocks::of_snapshot(self.bench, self.kind, name);
            let whole = opened.is_ok_and(|past| {
                (0..).zip(versions).all(|(number, version)| past.version(number).ok() == Some(Some(*version)))
            });
            snapshots += f64::from(u8::from(!whole));
        }
        Ok(Ok((blocks, snapshots)))
    }

    /// Destroys all snapshots but the youngest, and writes again.
    fn resume(&mut self) -> Result<()> {
        let names: Vec<String> = self.snapshots.iter().rev().skip(1).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.bench.system.destroy(&name)?;
        }
        self.bench.system.rest()?;
        self.write_group()
    }
}
