//! `icecore destroy`

use super::{finish, take, with_descendants};
use crate::format;
use crate::output::{Output, print_document};
use crate::pool::{Context, open_to_read, open_to_write};
use clap::Args;
use icecore::DestroyPlan;
use icecore::admin::{Access, Failure, Request, Response};
use icecore::names::{DestroyTarget, parse_target};
use icecore::units::ByteLength;
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
TARGET is a snapshot (db@monday), a range of snapshots, both ends included
(db@monday%friday), or a dataset.

Example:
  icecore destroy -nv db@monday%friday    what would go, and what comes back
  icecore destroy db@monday%friday
  icecore destroy -r try-it")]
pub struct Arguments {
    /// What to destroy
    #[arg(value_name = "TARGET")]
    target: OsString,

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
    let (pool, name) = context.name(&arguments.target)?;
    let target = parse_target(&name, arguments.recursive).map_err(Failure::from)?;
    let mut access = if arguments.dry_run { open_to_read(&pool)? } else { open_to_write(&pool)? };
    let plan = carry_out(&mut access, target, arguments);
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

/// Plans everything before anything is destroyed, so that a refusal leaves all as it was.
fn carry_out(
    access: &mut Access,
    target: DestroyTarget,
    arguments: &Arguments,
) -> anyhow::Result<DestroyPlan> {
    let targets = match &target {
        DestroyTarget::Snapshot(name) if arguments.recursive => {
            with_descendants(access, name)?.into_iter().map(DestroyTarget::Snapshot).collect()
        }
        _ => vec![target],
    };
    let mut planned = DestroyPlan::default();
    for target in &targets {
        let plan = access.call(Request::PlanDestroy { target: target.clone() })?;
        add(&mut planned, take!(plan, Response::Destroyed(plan) => plan));
    }
    if arguments.dry_run {
        return Ok(planned);
    }
    let mut done = DestroyPlan::default();
    for target in targets {
        let plan = access.call(Request::Destroy { target })?;
        add(&mut done, take!(plan, Response::Destroyed(plan) => plan));
    }
    Ok(done)
}

/// Snapshots of different datasets hold different blocks, so their sums add up.
fn add(sum: &mut DestroyPlan, plan: DestroyPlan) {
    sum.names.extend(plan.names);
    sum.frees = ByteLength(sum.frees.get() + plan.frees.get());
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
