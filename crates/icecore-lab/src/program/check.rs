//! What `icecore lab run` refuses: options that a run would ignore.

use super::RunArguments;
use crate::exit;
use icecore_lab::experiments::{DiskUse, Experiment, Group};
use icecore_lab::{DatabaseServer, EXPERIMENTS, LoadTool};

/// Refuses options that a run of an experiment would ignore.
pub fn arguments(arguments: &RunArguments) -> anyhow::Result<()> {
    let named = |keep: fn(&Experiment) -> bool| {
        let names: Vec<_> = EXPERIMENTS.iter().filter(|one| keep(one)).map(|one| one.name).collect();
        names.join(", ")
    };
    let name = &arguments.name;
    match EXPERIMENTS.iter().find(|experiment| experiment.name == name) {
        None => {
            let known = named(|_| true);
            Err(exit::usage(format!("there is no experiment {name:?}: choose one of {known}")))
        }
        Some(_) if arguments.output.is_some() => {
            Err(exit::usage(format!("--output goes with all: {name} prints its result, so redirect that")))
        }
        Some(experiment) if arguments.minutes.is_some() && !experiment.timed => {
            let timed = named(|one| one.timed);
            Err(exit::usage(format!("{name} takes as long as it takes: --minutes goes with {timed}")))
        }
        Some(experiment) => {
            of_study(experiment, arguments)?;
            arguments.only.as_ref().map_or(Ok(()), |only| single(experiment, only))
        }
    }
}

/// Refuses systems that there are not.
pub fn systems(arguments: &RunArguments) -> anyhow::Result<()> {
    let known = icecore_lab::systems::names();
    match arguments.systems.iter().find(|system| !known.contains(&system.as_str())) {
        Some(unknown) => {
            Err(exit::usage(format!("there is no system {unknown:?}: choose from {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

/// Studies that compare something else than the systems of the others, and what.
pub const WITHOUT_SYSTEMS: [(&str, &str); 2] = [
    ("placement", "compares disks for the files of a database"),
    ("model", "replays all of its policies, and runs no system"),
];
/// Experiments that run once, however many rounds the others make.
const WITHOUT_ROUNDS: [&str; 2] = ["model", "soak"];

/// The guest has no PostgreSQL.
fn server(name: &str, arguments: &RunArguments) -> anyhow::Result<()> {
    match arguments.server {
        Some(_) if name != "placement" => {
            Err(exit::usage(format!("{name} chooses no server: --server goes with placement")))
        }
        Some(DatabaseServer::Postgres) if arguments.guest.is_wanted() => {
            Err(exit::usage("the guest has no PostgreSQL: leave out --guest".to_owned()))
        }
        _ => Ok(()),
    }
}

/// The least that blogbench does not fill at once.
const BLOGBENCH_BYTES_MIN: u64 = 1 << 30;

/// Each program drives one study. The guest has no blogbench, as Debian has no package of it.
fn tool(name: &str, arguments: &RunArguments) -> anyhow::Result<()> {
    match arguments.tool {
        Some(tool) if tool.study() != name => {
            let (tool, study) = (tool.name(), tool.study());
            Err(exit::usage(format!("{tool} does not drive {name}: --tool {tool} goes with {study}")))
        }
        Some(LoadTool::Blogbench) if arguments.guest.is_wanted() => {
            Err(exit::usage("the guest has no blogbench: leave out --guest".to_owned()))
        }
        Some(LoadTool::Blogbench) if arguments.size.is_some_and(|bytes| bytes < BLOGBENCH_BYTES_MIN) => {
            Err(exit::usage("a device of less than 1G has no room for blogbench: choose more".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Studies whose data may be larger or smaller.
const SIZED: [&str; 3] = ["fragment", "backup", "placement"];

fn of_study(experiment: &Experiment, arguments: &RunArguments) -> anyhow::Result<()> {
    let name = experiment.name;
    systems(arguments)?;
    if experiment.group != Group::Study && !arguments.systems.is_empty() {
        return Err(exit::usage(format!("{name} compares no systems: --systems goes with studies")));
    }
    if let Some((_, why)) = WITHOUT_SYSTEMS.iter().find(|(study, _)| *study == name)
        && !arguments.systems.is_empty()
    {
        return Err(exit::usage(format!("{name} {why}: leave out --systems")));
    }
    if WITHOUT_ROUNDS.contains(&name) && arguments.pairs.is_some() {
        return Err(exit::usage(format!("{name} has no rounds to repeat: leave out --pairs")));
    }
    if name == "model" && arguments.device.is_some() {
        return Err(exit::usage("model computes, and measures no disk: leave out --device".to_owned()));
    }
    if name == "model" && arguments.guest.is_wanted() {
        return Err(exit::usage("model computes, and needs no machine for it: leave out --guest".to_owned()));
    }
    if experiment.group != Group::Study && arguments.guest.is_wanted() {
        return Err(exit::usage(format!("{name} is no study: --guest goes with studies")));
    }
    if name != "valuation" && arguments.iterations.is_some() {
        return Err(exit::usage(format!("{name} has no iterations: --iterations goes with valuation")));
    }
    tool(name, arguments)?;
    server(name, arguments)?;
    if arguments.rate.is_some() && arguments.tool.unwrap_or_default() != LoadTool::Fio {
        return Err(exit::usage("--rate goes with --tool fio, which keeps to a rate".to_owned()));
    }
    if name != "shock" && arguments.rate.is_some() {
        return Err(exit::usage(format!("{name} sets its own pace: --rate goes with shock")));
    }
    arguments.traces.check(name, arguments)?;
    if arguments.disk.is_some() && experiment.disk == DiskUse::None {
        let studies = EXPERIMENTS.iter().filter(|one| one.disk != DiskUse::None);
        let names = studies.map(|one| one.name).collect::<Vec<_>>().join(", ");
        return Err(exit::usage(format!("{name} runs on no simulated disk: --disk goes with {names}")));
    }
    let is_sized = SIZED.contains(&name) || arguments.tool == Some(LoadTool::Blogbench);
    if !is_sized && arguments.size.is_some() {
        let reason = format!("--size goes with {}, and --tool blogbench", SIZED.join(", "));
        return Err(exit::usage(format!("{name} has nothing to size: {reason}")));
    }
    Ok(())
}

fn single(experiment: &Experiment, only: &str) -> anyhow::Result<()> {
    let (name, checks) = (experiment.name, experiment.single_checks());
    if checks.is_empty() {
        Err(exit::usage(format!("{name} runs all of its checks: --only goes with mount")))
    } else if checks.contains(&only) {
        Ok(())
    } else {
        Err(exit::usage(format!("{name} has no check {only:?}: choose one of {}", checks.join(", "))))
    }
}
