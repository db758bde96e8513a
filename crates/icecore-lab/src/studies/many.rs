//! `many`: what taking, writing and destroying cost with 1 to 10,000 snapshots.
//!
//! A block is written between any two snapshots, durably. Each system goes on until it has all snapshots or
//! its time is up.

use super::blocks::{self, Blocks};
use super::{Bench, Lineup, Needs};
use crate::driving;
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::random::Random;
use crate::report::System as Measured;
use crate::statistics::median;
use crate::systems::{Areas, Kind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How much is done.
struct Scope {
    snapshots: usize,
    blocks: u64,
    device_bytes: u64,
    /// For taking, and again for destroying.
    limit: Duration,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let toy = cfg!(debug_assertions);
        Self {
            snapshots: options.size(10_000, if toy { 6 } else { 100 }),
            blocks: options.size(4096, if toy { 16 } else { 1024 }),
            device_bytes: options.size(8 << 30, 400 << 20),
            limit: options.size(Duration::from_secs(600), Duration::from_secs(8)),
        }
    }
}

impl Scope {
    /// A copy area has room for the file, and for what the file system writes itself.
    fn areas(&self) -> Areas {
        let file_bytes = self.blocks * blocks::BLOCK_BYTES as u64;
        Areas { count: self.snapshots as u64, bytes: file_bytes / 2 * 3 + (8 << 20) }
    }
}

/// Seconds by number of snapshots.
#[derive(Default)]
struct Costs {
    take: Vec<f64>,
    write: Vec<f64>,
    destroy: Vec<f64>,
    space_bytes: f64,
    /// What the system said when it went no further.
    refusal: Option<String>,
    /// What was left to be freed when the last destruction had returned.
    freed_s: f64,
}

impl Costs {
    /// What destroying one takes on average, with what is freed after the last one. A median would leave out a
    /// system that frees for many of them at once.
    fn destroying(&self) -> Option<f64> {
        let all = self.destroy.iter().sum::<f64>() + self.freed_s;
        (!self.destroy.is_empty()).then(|| all / self.destroy.len() as f64)
    }

    /// `None` where a system that has some snapshots refuses: it is measured as far as it goes.
    fn unless_refused<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Err(error) if !matches!(error, Error::Stopped) && !self.take.is_empty() => {
                self.refusal = Some(error.to_string());
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }
}

/// Bytes that the study needs at the same time, without copy areas of LVM.
pub(crate) fn room(options: &Options) -> u64 {
    Scope::of(options).device_bytes
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let lineup = Lineup::of(options, Needs::Snapshots)?;
    compare(lineup, options)
}

fn compare(mut lineup: Lineup, options: &Options) -> Result<Findings> {
    let (scope, rounds) = (Scope::of(options), options.rounds(1, 1));
    lineup.require_room(room(options), scope.areas(), options)?;
    let costs = lineup.measure(rounds, options, |_, kind| {
        let mut bench = Bench::begin(kind, scope.device_bytes, scope.areas(), options)?;
        let costs = bench.attempt(kind, |bench| one(bench, kind, &scope, options))?;
        let (take, count) = (median(&costs.take) * 1e3, costs.take.len());
        options.say(&format!("  {}: {count} snapshots, {take:.3} ms each", kind.name))?;
        Ok(costs)
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "s");
    for (kind, rounds) in &costs {
        let medians =
            |of: fn(&Costs) -> &Vec<f64>| rounds.iter().map(|costs| median(of(costs))).collect::<Vec<_>>();
        let (take, write) = (medians(|costs| &costs.take), medians(|costs| &costs.write));
        let destroy = rounds.iter().filter_map(Costs::destroying).collect();
        report(&mut findings, kind.name, "take", rounds, take, |costs| &costs.take);
        report(&mut findings, kind.name, "write", rounds, write, |costs| &costs.write);
        report(&mut findings, kind.name, "destroy", rounds, destroy, |costs| &costs.destroy);
        if let Some(refusal) = rounds.iter().find_map(|costs| costs.refusal.as_deref()) {
            findings.parameter(&format!("refusal_of_{}", kind.name), refusal);
        }
    }
    findings.parameter("rounds", rounds);
    findings.parameter("snapshots", scope.snapshots);
    findings.parameter("file_bytes", scope.blocks * blocks::BLOCK_BYTES as u64);
    findings.parameter("limit_s", scope.limit.as_secs_f64());
    driving::report(&mut findings, Some(blocks::driving_us()?));
    driving::report_programs(&mut findings, options)?;
    Ok(findings)
}

fn one(bench: &mut Bench, kind: &Kind, scope: &Scope, options: &Options) -> Result<Costs> {
    let mut random = Random::new(options.seed);
    let mut costs = Costs::default();
    let blocks = Blocks::create(&*bench.system, kind, scope.blocks)?;
    bench.system.rest()?;
    let begin = Instant::now();
    while costs.take.len() < scope.snapshots && begin.elapsed() < scope.limit {
        options.go_on()?;
        let version = costs.take.len() as u64 + 1;
        let written = timed(|| blocks.write(&[(random.below(scope.blocks), version)]));
        let taken = written
            .and_then(|written| Ok((written, timed(|| bench.system.snapshot(&format!("s{version}")))?)));
        let Some((write, take)) = costs.unless_refused(taken)? else { break };
        costs.write.push(write);
        costs.take.push(take);
    }
    drop(blocks);
    costs.space_bytes = bench.system.space_bytes()? as f64;
    let begin = Instant::now();
    for number in 1..=costs.take.len() {
        options.go_on()?;
        if begin.elapsed() >= scope.limit {
            break;
        }
        let destroyed = timed(|| bench.system.destroy(&format!("s{number}")));
        let Some(seconds) = costs.unless_refused(destroyed)? else { break };
        costs.destroy.push(seconds);
    }
    costs.freed_s = timed(|| bench.system.rest())?;
    Ok(costs)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Costs of destroying count downwards: the first one has all other snapshots beside it.
fn report(
    findings: &mut Findings,
    system: &str,
    what: &str,
    rounds: &[Costs],
    samples: Vec<f64>,
    of: fn(&Costs) -> &Vec<f64>,
) {
    let counts = |costs: &Costs| -> Vec<f64> {
        let (all, taken) = (of(costs).len(), costs.take.len());
        (1..=all).map(|number| (if what == "destroy" { taken + 1 - number } else { number }) as f64).collect()
    };
    let mean = |of: fn(&Costs) -> f64| rounds.iter().map(of).sum::<f64>() / rounds.len() as f64;
    let mut counters = BTreeMap::from([
        ("snapshots".to_owned(), mean(|costs| costs.take.len() as f64)),
        ("space_bytes".to_owned(), mean(|costs| costs.space_bytes)),
    ]);
    if what == "destroy" {
        counters.insert("freed_after_s".to_owned(), mean(|costs| costs.freed_s));
    }
    let measured = Measured::new("s", samples)
        .with_series("cost_s", rounds.iter().map(|costs| of(costs).clone()).collect())
        .with_series("count", rounds.iter().map(counts).collect())
        .with_counters(counters);
    findings.system(&format!("{system}/{what}"), measured);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::systems::{SYSTEMS, System};
    use crate::tool;
    use std::path::PathBuf;
    use std::process::Command;

    #[test]
    fn destroying_costs_what_is_freed_for_many_at_once_and_afterwards_too() {
        let costs = Costs { destroy: vec![0.0, 0.0, 0.0, 3.0], freed_s: 1.0, ..Costs::default() };
        assert_eq!(costs.destroying(), Some(1.0));
        assert_eq!(Costs { destroy: Vec::new(), ..costs }.destroying(), None);
    }

    const DELAY: Duration = Duration::from_millis(60);

    fn reflink() -> &'static Kind {
        SYSTEMS.iter().find(|kind| kind.name == "xfs-reflink").expect("a system")
    }

    /// A system that takes its time for a snapshot, and takes no more than four.
    struct Slowed(Box<dyn System>, usize);

    impl System for Slowed {
        fn data(&self) -> Result<PathBuf> {
            self.0.data()
        }
        fn snapshot(&mut self, name: &str) -> Result<()> {
            std::thread::sleep(DELAY);
            self.1 += 1;
            if self.1 > 4 {
                let reason = "no more of them".to_owned();
                return Err(Error::Inconclusive { what: "a snapshot".to_owned(), reason });
            }
            self.0.snapshot(name)
        }
        fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
            self.0.snapshot_folder(name)
        }
        fn destroy(&mut self, name: &str) -> Result<()> {
            self.0.destroy(name)
        }
        fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
            self.0.held_bytes(names)
        }
        fn space_bytes(&self) -> Result<u64> {
            self.0.space_bytes()
        }
        fn device(&self) -> &Device {
            self.0.device()
        }
        fn cool(&mut self) -> Result<()> {
            self.0.cool()
        }
        fn rest(&self) -> Result<()> {
            self.0.rest()
        }
    }

    static SLOWED: Kind = Kind {
        name: "slowed",
        snapshots: true,
        files: true,
        probe: || Ok(()),
        begin: |ground| Ok(Box::new(Slowed((reflink().begin)(ground)?, 0))),
    };

    /// A rival whose tool does not come back.
    static HANGING: Kind = Kind {
        name: "hanging",
        begin: |ground| {
            tool::output(Command::new("sleep").arg("600"), ground.options)?;
            unreachable!("it takes longer than it may")
        },
        ..SLOWED
    };

    fn report_of(kinds: Vec<&'static Kind>) -> Findings {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::new(folder.path());
        options.quick = true;
        options.time_limit = Duration::from_secs(20);
        compare(Lineup::with(kinds), &options).expect("measured")
    }

    #[test]
    fn a_rival_that_hangs_is_left_out_with_the_reason_and_the_others_are_measured() {
        if (reflink().probe)().is_err() {
            return;
        }
        let report = report_of(vec![&HANGING, reflink()]);
        let hanging = &report.systems()["hanging"];
        assert!(hanging.samples.is_empty(), "{hanging:?}");
        let reason = hanging.unavailable.as_deref().expect("a reason");
        assert!(reason.contains("`sleep 600` did not end within 20 s"), "{reason}");
        assert!(report.systems()["xfs-reflink/take"].samples[0] > 0.0);
    }

    #[test]
    fn a_system_slowed_on_purpose_shows_up_slower_and_one_that_refuses_is_measured_until_then() {
        if (reflink().probe)().is_err() {
            return;
        }
        let report = report_of(vec![reflink(), &SLOWED]);
        let cost = |key: &str| report.systems()[key].samples[0];
        let (fast, slow) = (cost("xfs-reflink/take"), cost("slowed/take"));
        assert!(slow - fast > DELAY.as_secs_f64() / 2.0, "{fast} and {slow}");
        let taken = |key: &str| report.systems()[key].counters["snapshots"];
        assert_eq!((taken("xfs-reflink/take"), taken("slowed/take")), (6.0, 4.0));
    }
}
