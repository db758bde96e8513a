//! `icecore monitor`

mod check;
mod thresholds;

use super::{finish, list_entries, take};
use crate::exit::{self, Silent};
use crate::output::Output;
use crate::pool::{Context, open_to_read};
use check::{Check, State};
use clap::Args;
use icecore::ListFilter;
use icecore::admin::protocol::Status;
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use icecore::retention::is_of_rollback;
use icecore::units::Timestamp;
use icecore::{EntryKind, ListEntry};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use thresholds::Thresholds;

const EXAMPLES: &str = "\
Example:
  icecore monitor /srv/pool
  icecore monitor --age-warn 2h --age-crit 6h --scrub-warn 35d /srv/pool
  icecore set icecore:monitor.age-crit=26h db     for this dataset and below";

const DETAILS: &str = "\
Prints one line as Nagios and its relatives want it, with performance data,
and a line for everything that is not as it should be. It looks at: whether
the pool takes writes; how much of it is used, of its size limit or of what
its filesystem has room for; the age of the newest snapshot of each dataset
that has a limit (by the options, or by its properties icecore:monitor.age-warn
and icecore:monitor.age-crit; 0 for none); what the last scrub found, and
when.

Exit codes of this command:
  0  all is well
  1  warning
  2  critical
  3  unknown: the pool cannot be asked";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{DETAILS}"))]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Warn when so much of the pool is used
    #[arg(long, value_name = "PERCENT", default_value = "80%")]
    space_warn: String,

    /// Critical when so much of the pool is used
    #[arg(long, value_name = "PERCENT", default_value = "90%")]
    space_crit: String,

    /// Warn when a dataset's newest snapshot is older: 90m, 26h, 7d
    #[arg(long, value_name = "DURATION")]
    age_warn: Option<String>,

    /// Critical when a dataset's newest snapshot is older
    #[arg(long, value_name = "DURATION")]
    age_crit: Option<String>,

    /// Warn when the last scrub that came to its end is older
    #[arg(long, value_name = "DURATION")]
    scrub_warn: Option<String>,

    /// Critical when the last scrub that came to its end is older
    #[arg(long, value_name = "DURATION")]
    scrub_crit: Option<String>,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    // A senseless command line must not look like a pool on fire: all its errors are "unknown".
    let prepared = Thresholds::of(arguments)
        .and_then(|thresholds| context.pool_or(arguments.folder.as_deref()).map(|pool| (pool, thresholds)));
    let (pool, thresholds) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            exit::tell(&error);
            return Err(Silent(State::Unknown as u8).into());
        }
    };
    let checks = look(&pool, &thresholds).unwrap_or_else(|error| vec![unreachable(&error)]);
    let worst = checks.iter().map(|check| check.state).max_by_key(|state| state.severity());
    let worst = worst.unwrap_or(State::Unknown);
    show(&pool, worst, &checks, arguments.json)?;
    if worst == State::Ok { Ok(()) } else { Err(Silent(worst as u8).into()) }
}

/// A pool that cannot be opened: damage is critical, of everything else nobody knows.
fn unreachable(error: &anyhow::Error) -> Check {
    let code = error.downcast_ref::<Failure>().map(|failure| failure.code);
    let state = match code {
        Some(ErrorCode::Damaged | ErrorCode::ReadOnlyAfterFailure | ErrorCode::NoSpace) => State::Critical,
        _ => State::Unknown,
    };
    Check::new("pool", state, format!("{error:#}"))
}

fn look(pool: &Path, thresholds: &Thresholds) -> anyhow::Result<Vec<Check>> {
    let mut access = open_to_read(pool)?;
    let remote = access.is_remote();
    let found = ask(&mut access);
    let (status, entries, ages) = finish(access, found)?;
    let now = Timestamp::now();
    let mut checks = vec![writes(&status, remote), space(&status, thresholds)];
    checks.extend(snapshots(&entries, &ages, thresholds, now));
    checks.push(scrub(&status, thresholds, now));
    checks.push(copies(&status));
    Ok(checks)
}

type Ages = BTreeMap<String, thresholds::Ages>;

fn ask(access: &mut Access) -> anyhow::Result<(Box<Status>, Vec<ListEntry>, Ages)> {
    let status = take!(access.call(Request::Status)?, Response::Status(status) => status);
    let filter = ListFilter { root: None, depth: None, datasets: true, snapshots: true };
    let entries = list_entries(access, filter)?;
    let mut ages = Ages::new();
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Dataset) {
        let response = access.call(Request::Properties { name: entry.name.clone() })?;
        let properties = take!(response, Response::Properties(properties) => properties);
        ages.insert(entry.name.clone(), thresholds::Ages::of_properties(&properties));
    }
    Ok((status, entries, ages))
}

fn writes(status: &Status, remote: bool) -> Check {
    if let Some(failure) = &status.statistics.failure {
        let text = format!("takes no writes since a failure: {failure}");
        return Check::new("writes", State::Critical, text).with("failed", "1", "", ["", ""]);
    }
    // What we opened ourselves we opened only to read.
    let check = if status.read_only && remote {
        Check::new("writes", State::Warning, "is opened read-only")
    } else {
        Check::new("writes", State::Ok, "takes writes")
    };
    check.with("failed", "0", "", ["", ""])
}

fn space(status: &Status, thresholds: &Thresholds) -> Check {
    let statistics = &status.statistics;
    let (used, capacity) = (statistics.used_bytes, statistics.capacity_bytes);
    let share = |hundredths: u64| u128::from(capacity) * u128::from(hundredths) / 10_000;
    let (warn, crit) = (share(thresholds.space_warn), share(thresholds.space_crit));
    let state = if statistics.available_bytes == 0 || u128::from(used) >= crit {
        State::Critical
    } else if u128::from(used) >= warn {
        State::Warning
    } else {
        State::Ok
    };
    let hundredths = if capacity == 0 { 10_000 } else { u128::from(used) * 10_000 / u128::from(capacity) };
    let size = |bytes| crate::format::size(icecore::units::ByteLength(bytes));
    let mut text = format!(
        "{}.{:02}% used ({} of {}), {} can be written",
        hundredths / 100,
        hundredths % 100,
        size(used),
        size(capacity),
        size(statistics.available_bytes)
    );
    if state != State::Ok {
        text.push_str(" (icecore prune or destroy frees space)");
    }
    let limits = [warn.to_string(), crit.to_string()];
    Check::new("space", state, text)
        .with("used", used, "B", limits)
        .with("capacity", capacity, "B", ["", ""])
        .with("available", statistics.available_bytes, "B", ["", ""])
}

/// A check for each dataset that has a limit.
fn snapshots(entries: &[ListEntry], ages: &Ages, thresholds: &Thresholds, now: Timestamp) -> Vec<Check> {
    let mut checks = Vec::new();
    for of_dataset in entries.chunk_by(|_, next| next.kind == EntryKind::Snapshot) {
        let Some((dataset, snapshots)) = of_dataset.split_first() else { continue };
        let limits = match ages.get(&dataset.name) {
            Some(own) => match own.or(&thresholds.ages) {
                Ok(limits) => limits,
                Err(problem) => {
                    let text = format!("{}: {problem}", dataset.name);
                    checks.push(Check::new(format!("age_{}", dataset.name), State::Unknown, text));
                    continue;
                }
            },
            None => thresholds.ages.clone(),
        };
        if limits.is_empty() {
            continue;
        }
        let taken = snapshots
            .iter()
            .filter(|entry| entry.name.split_once('@').is_none_or(|(_, short)| !is_of_rollback(short)));
        let newest = taken.max_by_key(|entry| entry.created);
        // A dataset that was just made has had no chance yet.
        let since = newest.map_or(dataset.created, |entry| entry.created);
        let seconds = seconds_between(since, now);
        let age = thresholds::age_text(seconds);
        let text = match newest {
            Some(_) => format!("{}: newest snapshot is {age} old", dataset.name),
            None => format!("{}: no snapshot since it was made, {age} ago", dataset.name),
        };
        let check = Check::new(format!("age_{}", dataset.name), limits.judge(seconds), text);
        checks.push(check.with(format!("age_{}", dataset.name), seconds, "s", limits.perfdata()));
    }
    checks
}

fn scrub(status: &Status, thresholds: &Thresholds, now: Timestamp) -> Check {
    let limits = &thresholds.scrub;
    let Some(last) = status.last_scrub else {
        let state = if limits.is_empty() { State::Ok } else { State::Warning };
        return Check::new("scrub", state, "never scrubbed");
    };
    let seconds = seconds_between(last.when, now);
    let age = thresholds::age_text(seconds);
    let (state, text) = if last.damaged > 0 {
        let blocks = if last.damaged == 1 {
            "1 damaged block".to_owned()
        } else {
            format!("{} damaged blocks", last.damaged)
        };
        (State::Critical, format!("the last scrub, {age} ago, found {blocks}: icecore scrub names them"))
    } else if !last.complete {
        let state = if limits.is_empty() { State::Ok } else { State::Warning };
        (state, format!("the last scrub, {age} ago, was cut off"))
    } else {
        (limits.judge(seconds), format!("scrubbed {age} ago"))
    };
    Check::new("scrub", state, text).with("damaged", last.damaged, "", ["", "0"]).with(
        "scrub_age",
        seconds,
        "s",
        limits.perfdata(),
    )
}

/// Without copies that should be there nothing is lost yet.
fn copies(status: &Status) -> Check {
    let report = &status.statistics.copies;
    let state = if report.is_whole() { State::Ok } else { State::Warning };
    let text = format!("copies of {}", super::copies::sentence(report));
    let text = if report.mode == "none" { "no second copies".to_owned() } else { text };
    let healed = status.statistics.healed_places;
    Check::new("copies", state, text).with("healed", healed, "", ["", ""])
}

fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.get().saturating_sub(from.get()) / 1_000_000_000).unwrap_or(0)
}

fn show(pool: &Path, worst: State, checks: &[Check], as_json: bool) -> anyhow::Result<()> {
    let mut output = Output::new();
    if as_json {
        let checks: Vec<_> = checks.iter().map(Check::document).collect();
        output.document("monitor", pool, json!({ "state": worst.name(), "checks": checks }))?;
        return output.finish();
    }
    // The worst first; what is well is only worth a word if all is.
    let mut told: Vec<&Check> = checks.iter().filter(|check| check.state == worst).collect();
    if worst == State::Ok {
        told.retain(|check| !check.name.starts_with("age_") || checks.len() <= 5);
    }
    let summary = told.iter().take(5).map(|check| check.text.replace(['|', '\n'], " "));
    let summary = summary.collect::<Vec<_>>().join("; ");
    let perfdata: Vec<&str> = checks.iter().flat_map(|check| &check.perfdata).map(String::as_str).collect();
    let perfdata = if perfdata.is_empty() { String::new() } else { format!(" | {}", perfdata.join(" ")) };
    output.line(format!("ICECORE {} - {}: {summary}{perfdata}", worst.name(), pool.display()))?;
    for check in checks.iter().filter(|check| check.state != State::Ok) {
        output.line(format!("{}: {}", check.state.name(), check.text.replace(['|', '\n'], " ")))?;
    }
    output.finish()
}
