//! `icecore destroy`

use super::{finish, snapshots_target, take, with_descendants};
use crate::exit;
use crate::format;
use crate::output::{Output, print_document};
use crate::pool::{Context, open_to_read, open_to_write};
use clap::Args;
use icecore::DestroyPlan;
use icecore::admin::{Access, Failure, Request, Response};
use icecore::names::{DestroyTarget, parse_target};
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
TARGET is a snapshot (db@monday), a range of snapshots, both ends included
(db@monday%friday), or a dataset. Several snapshots and ranges go in one step.

Example:
  icecore destroy -nv db@monday%friday    what would go, and what comes back
  icecore destroy db@monday%friday
  icecore destroy -r try-it")]
pub struct Arguments {
    /// What to destroy
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<OsString>,

    /// A dataset: its snapshots and all datasets below it too. A snapshot: those of that name below as well
    #[arg(short, long)]
    recursive: bool,

    /// Do nothing; say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Name everything that goes, and the bytes that come back
    #[arg(short, long)]
    verbose: bool,

    /// For scripts: tabs, and exact bytes
    #[arg(short, long)]
    parsable: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let (pool, names) = context.names(&arguments.targets)?;
    let targets: Vec<DestroyTarget> = names
        .iter()
        .map(|name| parse_target(name, arguments.recursive).map_err(Failure::from))
        .collect::<Result<_, _>>()?;
    if targets.len() > 1 && targets.iter().any(|target| matches!(target, DestroyTarget::Dataset { .. })) {
        return Err(exit::usage("several snapshots can be destroyed at once, but datasets one by one"));
    }
    let mut access = if arguments.dry_run { open_to_read(&pool)? } else { open_to_write(&pool)? };
    let plan = carry_out(&mut access, targets, arguments);
    let plan = finish(access, plan)?;
    if arguments.json {
        let body = json!({
            "dry_run": arguments.dry_run,
            "destroyed": plan.names,
            "freed_bytes": plan.frees.get(),
        });
        return print_document("destroy", &pool, body);
    }
    let mut output = Output::new();
    if arguments.verbose || arguments.dry_run {
        tell(&plan, arguments, &mut output)?;
    }
    output.finish()
}

/// All of it in one step, so that a refusal leaves everything as it was, and the sum is exact.
fn carry_out(
    access: &mut Access,
    targets: Vec<DestroyTarget>,
    arguments: &Arguments,
) -> anyhow::Result<DestroyPlan> {
    let target = joined(access, targets, arguments.recursive)?;
    let request = if arguments.dry_run {
        Request::PlanDestroy { target, unheld: false }
    } else {
        Request::Destroy { target }
    };
    Ok(take!(access.call(request)?, Response::Destroyed(plan) => plan))
}

fn joined(
    access: &mut Access,
    mut targets: Vec<DestroyTarget>,
    recursive: bool,
) -> anyhow::Result<DestroyTarget> {
    match (targets.pop(), targets.is_empty()) {
        (Some(single @ (DestroyTarget::Dataset { .. } | DestroyTarget::Range { .. })), true) => {
            return Ok(single);
        }
        (last, _) => targets.extend(last),
    }
    let names = selected(access, &targets, recursive)?;
    Ok(snapshots_target(names.iter().map(String::as_str)))
}

/// Full names of snapshots and of those in ranges; `recursive`: those of the same name below as well.
pub(super) fn selected(
    access: &mut Access,
    targets: &[DestroyTarget],
    recursive: bool,
) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for target in targets {
        match target {
            DestroyTarget::Snapshot(name) if recursive => names.extend(with_descendants(access, name)?),
            DestroyTarget::Snapshot(name) => names.push(name.clone()),
            range => {
                let plan = access.call(Request::PlanDestroy { target: range.clone(), unheld: true })?;
                names.extend(take!(plan, Response::Destroyed(plan) => plan.names));
            }
        }
    }
    Ok(names)
}

fn tell(plan: &DestroyPlan, arguments: &Arguments, output: &mut Output) -> anyhow::Result<()> {
    if arguments.parsable {
        for name in &plan.names {
            output.line(format!("destroy\t{name}"))?;
        }
        return output.line(format!("reclaim\t{}", plan.frees));
    }
    let (destroy, reclaim) =
        if arguments.dry_run { ("would destroy", "would reclaim") } else { ("destroyed", "reclaimed") };
    for name in &plan.names {
        output.line(format!("{destroy} {name}"))?;
    }
    output.line(format!("{reclaim} {}", format::size(plan.frees)))
}
