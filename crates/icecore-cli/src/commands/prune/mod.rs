//! `icecore prune`

mod choose;
mod goal;
mod plan;
mod show;

use super::{finish, take};
use crate::exit;
use crate::pool::{Context, open_to_read, open_to_write};
use choose::Reason;
use clap::Args;
use goal::Goal;
use icecore::DestroyTarget;
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use icecore::retention::Policy;
use plan::{Plan, Row};
use std::ffi::OsString;

/// Names that one request destroys at most: it has to fit a frame.
const NAMES_PER_REQUEST: usize = 50_000;

const EXAMPLES: &str = "\
Example:
  icecore set icecore:prune.daily=7 icecore:prune.monthly=12 db
  icecore prune -nv db                         what would go, and why
  icecore prune -a                             what a timer runs
  icecore prune --keep-last 5 --keep-within 2d -r team
  icecore prune --free 20% db                  oldest first, until it is free";

const DETAILS: &str = "\
A policy is made of rules, and a snapshot stays if any rule wants it. hourly
to yearly count the hours, days, weeks (from Monday on), months and years that
have snapshots, in UTC, and keep the newest snapshot of each. Rules are options
here, or else user properties of the dataset, inherited from those above it:
icecore:prune.last, .hourly, .daily, .weekly, .monthly, .yearly, .within and
.prefix. A dataset without rules loses nothing. Rules given here take the place
of all rules of the properties, but the prefix of the properties still counts
unless --prefix is given.

Never destroyed: snapshots that are held or have clones, and those that a
rollback took. Holds that have expired (icecore hold --expires) are released.
A snapshot with a file open on a mount stays, too: the exit code is 7 then.

--free and --max-used destroy snapshots that no rule wants, oldest first, and
only as many as it takes. A dataset that has no rules and is named, not found
by -a, keeps its newest snapshot then. Used is what versions reach; the size of
the pool is what contents can take of its limit, or what its filesystem has
room for. The exit code is 6 if it was not enough.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{DETAILS}"))]
pub struct Arguments {
    /// The datasets; with -a, the pool if -P does not name it
    #[arg(value_name = "DATASET")]
    names: Vec<OsString>,

    /// All datasets that have rules
    #[arg(short, long)]
    all: bool,

    /// All datasets below as well
    #[arg(short, long)]
    recursive: bool,

    /// Keep so many of the newest
    #[arg(long, value_name = "COUNT")]
    keep_last: Option<String>,

    /// Keep the newest of so many hours
    #[arg(long, value_name = "COUNT")]
    keep_hourly: Option<String>,

    /// Keep the newest of so many days
    #[arg(long, value_name = "COUNT")]
    keep_daily: Option<String>,

    /// Keep the newest of so many weeks
    #[arg(long, value_name = "COUNT")]
    keep_weekly: Option<String>,

    /// Keep the newest of so many months
    #[arg(long, value_name = "COUNT")]
    keep_monthly: Option<String>,

    /// Keep the newest of so many years
    #[arg(long, value_name = "COUNT")]
    keep_yearly: Option<String>,

    /// Keep all that are at most so much older than the newest: 90m, 12h, 7d, 4w, 6mo, 1y
    #[arg(long, value_name = "DURATION")]
    keep_within: Option<String>,

    /// Touch and count only snapshots whose names begin so; '' for all
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,

    /// Destroy only until so much of the pool is free: 20%, or a size
    #[arg(long, value_name = "SPACE")]
    free: Option<String>,

    /// Destroy only until so much of the pool is used at most
    #[arg(long, value_name = "SPACE")]
    max_used: Option<String>,

    /// Do nothing; say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Say what is kept, what goes and why
    #[arg(short, long)]
    verbose: bool,

    /// For scripts: tabs, no headers, exact bytes and times
    #[arg(short, long)]
    parsable: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The rules of the options, if there are any.
    fn policy(&self) -> anyhow::Result<Option<Policy>> {
        let rules = [
            ("last", &self.keep_last),
            ("hourly", &self.keep_hourly),
            ("daily", &self.keep_daily),
            ("weekly", &self.keep_weekly),
            ("monthly", &self.keep_monthly),
            ("yearly", &self.keep_yearly),
            ("within", &self.keep_within),
        ];
        let mut policy = Policy::default();
        let mut given = false;
        for (rule, value) in rules {
            if let Some(value) = value {
                policy.set(rule, value).map_err(|error| exit::usage(format!("--keep-{error}")))?;
                given = true;
            }
        }
        if given && !policy.has_rules() {
            return Err(exit::usage("these rules keep nothing: use `icecore destroy` to destroy everything"));
        }
        Ok(given.then_some(policy))
    }
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let policy = arguments.policy()?;
    let goal = Goal::parse(arguments.free.as_deref(), arguments.max_used.as_deref())?;
    let (pool, names) = match (arguments.all, arguments.names.as_slice()) {
        (true, []) => (context.pool()?, Vec::new()),
        (true, [pool]) => (context.pool_or(Some(pool.as_os_str()))?, Vec::new()),
        (true, _) => return Err(exit::usage("-a means all datasets: name none, or name some without it")),
        (false, []) => return Err(exit::usage("name datasets, or use -a for all that have rules")),
        (false, names) => context.names(names)?,
    };
    let mut access = if arguments.dry_run { open_to_read(&pool)? } else { open_to_write(&pool)? };
    let done = carry_out(&mut access, &names, policy, goal, arguments);
    let (plan, shortfall) = finish(access, done)?;
    show::show(&plan, &pool, arguments)?;
    verdict(&plan, shortfall)
}

fn carry_out(
    access: &mut Access,
    names: &[String],
    policy: Option<Policy>,
    goal: Option<Goal>,
    arguments: &Arguments,
) -> anyhow::Result<(Plan, Option<Failure>)> {
    let chosen = plan::Chosen {
        names,
        recursive: arguments.recursive,
        policy: policy.as_ref(),
        prefix: arguments.prefix.as_deref(),
        for_space: goal.is_some(),
    };
    let mut plan = plan::make(access, &chosen)?;
    let shortfall = match goal {
        Some(goal) => goal.apply(access, &mut plan)?,
        None => None,
    };
    plan.frees = frees(access, plan.going())?;
    if arguments.dry_run {
        return Ok((plan, shortfall));
    }
    for (snapshot, hold) in &plan.releases {
        let request = Request::Release { tag: hold.tag.clone(), snapshot: snapshot.clone() };
        take!(access.call(request)?, Response::Done => ());
    }
    let mut going: Vec<&mut Row> = plan.rows.iter_mut().filter(|row| row.reasons.is_empty()).collect();
    let mut freed = 0;
    for part in going.chunks_mut(NAMES_PER_REQUEST) {
        freed += destroy(access, part)?;
    }
    plan.frees = icecore::units::ByteLength(freed);
    Ok((plan, shortfall))
}

/// Destroys these snapshots, but for those that something keeps: these get a reason to stay. Answers the bytes
/// that come back.
fn destroy(access: &mut Access, rows: &mut [&mut Row]) -> anyhow::Result<u64> {
    let failure = match access.call(Request::Destroy { target: target(rows.iter().map(|row| &**row)) }) {
        Ok(destroyed) => {
            return Ok(take!(destroyed, Response::Destroyed(destroyed) => destroyed.frees.get()));
        }
        Err(failure) => failure,
    };
    match rows {
        _ if failure.code != ErrorCode::Busy => Err(failure.into()),
        [row] => {
            row.reasons.push(Reason::InUse(failure.message));
            Ok(0)
        }
        // None of them is gone. The one that keeps all is found in few steps.
        _ => {
            let (first, second) = rows.split_at_mut(rows.len() / 2);
            Ok(destroy(access, first)? + destroy(access, second)?)
        }
    }
}

/// What destroying all of these would give back together, once expired holds are gone.
fn frees<'a>(
    access: &mut Access,
    rows: impl Iterator<Item = &'a Row>,
) -> anyhow::Result<icecore::units::ByteLength> {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return Ok(icecore::units::ByteLength(0));
    }
    let planned = access.call(Request::PlanDestroy { target: target(rows), unheld: true })?;
    Ok(take!(planned, Response::Destroyed(plan) => plan.frees))
}

fn target<'a>(rows: impl Iterator<Item = &'a Row>) -> DestroyTarget {
    super::snapshots_target(rows.map(|row| row.entry.name.as_str()))
}

/// What went wrong in part: the error comes when everything else is done.
fn verdict(plan: &Plan, shortfall: Option<Failure>) -> anyhow::Result<()> {
    if let Some((dataset, problem)) = plan.problems.first() {
        let more = match plan.problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("nothing of {dataset} was pruned: {problem}{more}");
        return Err(Failure::new(ErrorCode::Invalid, message).into());
    }
    if let [first, others @ ..] = &plan.in_use()[..] {
        let more = match others.len() {
            0 => String::new(),
            more => format!(" (and {more} more stay for the like)"),
        };
        return Err(Failure::new(ErrorCode::Busy, format!("{first}{more}; the others are pruned")).into());
    }
    shortfall.map_or(Ok(()), |failure| Err(failure.into()))
}
