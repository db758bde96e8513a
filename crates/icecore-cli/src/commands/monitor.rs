//! `icecore monitor`

mod check;
mod disk;
mod space;
mod thresholds;

use super::{finish, list_entries, take};
use crate::exit::Silent;
use crate::output::Output;
use crate::pool::Context;
use check::{Check, State, plain};
use clap::Args;
use icecore::ListFilter;
use icecore::admin::locate::was_pool;
use icecore::admin::protocol::Status;
use icecore::admin::{Access, ErrorCode, Failure, Request, Response, connect_or_open};
use icecore::retention::is_of_rollback;
use icecore::units::Timestamp;
use icecore::{EntryKind, ListEntry};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use thresholds::Thresholds;

const EXAMPLES: &str = "\
Example:
  icecore monitor /srv/pool
  icecore monitor --age-warn 2h --age-crit 6h --scrub-warn 35d /srv/pool
  icecore set icecore:monitor.age-crit=26h db     for this dataset and below";

const DETAILS: &str = "\
Prints one line as Nagios and its relatives want it, with performance data,
and a line for everything that is not as it should be, with the command to run
next. It looks at:
  whether the pool takes writes, and its filesystem, if no process has it
  open;
  how much of it is used, of its size limit or of what its filesystem has room
  for, and how much can be written: it warns when that is less than a
  quarter of what --space-warn leaves free (5% of the pool), and is critical
  below a tenth of what --space-crit leaves free (1%);
  errors of the disk, of this process and of former ones: critical is damage
  that nothing healed. They count until a scrub that began later has found
  everything as it should be;
  what the last scrub found, and when;
  second copies that are missing, or do not count;
  the age of the newest snapshot of each dataset that has a limit (by the
  options, or by its properties icecore:monitor.age-warn and
  icecore:monitor.age-crit; 0 for none).

Exit codes of this command:
  0  all is well
  1  warning
  2  critical
  3  unknown: the pool cannot be asked, or the command line makes no sense";

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
    let prepared = Thresholds::of(arguments).and_then(|thresholds| {
        context.lost_pool_or(arguments.folder.as_deref()).map(|pool| (pool, thresholds))
    });
    let (pool, checks) = match prepared {
        Ok((pool, thresholds)) => {
            let checks = look(&pool, &thresholds).unwrap_or_else(|error| vec![unreachable(&pool, &error)]);
            (pool, checks)
        }
        Err(error) => (PathBuf::new(), vec![Check::new("arguments", State::Unknown, format!("{error:#}"))]),
    };
    let worst = checks.iter().map(|check| check.state).reduce(State::worse).unwrap_or(State::Unknown);
    match show(&pool, worst, &checks, arguments.json) {
        // Who reads this command knows its own codes alone.
        Err(error) if !crate::exit::is_broken_pipe(&error) => {
            crate::exit::tell(&error);
            return Err(Silent(State::Unknown as u8).into());
        }
        _ => {}
    }
    if worst == State::Ok { Ok(()) } else { Err(Silent(worst as u8).into()) }
}

/// Whether a command line means this command, as far as one that makes no sense can show.
pub fn is_meant<S: AsRef<OsStr>>(arguments: &[S]) -> bool {
    let mut words = arguments.iter().skip(1).map(AsRef::as_ref);
    while let Some(word) = words.next() {
        match word.as_encoded_bytes() {
            b"-P" | b"--pool" => drop(words.next()),
            [b'-', ..] => {}
            name => return name == b"monitor",
        }
    }
    false
}

/// Whether a command line that makes no sense asks for a document, or the environment does.
fn wants_document<S: AsRef<OsStr>>(arguments: &[S], variable: Option<&OsStr>) -> bool {
    let is_said =
        arguments.iter().map(AsRef::as_ref).take_while(|word| *word != "--").any(|word| word == "--json");
    let is_set = variable.and_then(OsStr::to_str).is_some_and(|value| {
        !matches!(value.to_ascii_lowercase().as_str(), "" | "n" | "no" | "f" | "false" | "off" | "0")
    });
    is_said || is_set
}

/// Tells that the command line makes no sense, as [`run`] would.
pub fn tell_usage<S: AsRef<OsStr>>(arguments: &[S], message: &str) -> anyhow::Result<()> {
    let check = Check::new("arguments", State::Unknown, message);
    let as_json = wants_document(arguments, std::env::var_os("ICECORE_MONITOR_JSON").as_deref());
    show(Path::new(""), State::Unknown, &[check], as_json)?;
    Err(Silent(State::Unknown as u8).into())
}

/// A pool that cannot be opened: damage and errors of the disk are critical, of everything else the state is
/// unknown.
fn unreachable(pool: &Path, error: &anyhow::Error) -> Check {
    use ErrorCode::{Damaged, DiskError, NoSpace, NotAPool, ReadOnlyAfterFailure};
    let code = error.downcast_ref::<Failure>().map(|failure| failure.code);
    let state = match code {
        Some(Damaged | DiskError | ReadOnlyAfterFailure | NoSpace) => State::Critical,
        // Its superblocks are lost.
        Some(NotAPool) if was_pool(pool) => State::Critical,
        _ => State::Unknown,
    };
    let check = Check::new("pool", state, format!("{error:#}"));
    if state == State::Critical { check.next("icecore check") } else { check }
}

fn look(pool: &Path, thresholds: &Thresholds) -> anyhow::Result<Vec<Check>> {
    // The command to run stands beside the message.
    let mut access = connect_or_open(pool, true)?;
    let remote = access.is_remote();
    let stale = access.stale().map(str::to_owned);
    let found = ask(&mut access);
    let (status, entries, ages) = finish(access, found)?;
    let now = Timestamp::now();
    let held = status.snapshots_hold;
    let mut room = space::space(&status.statistics, thresholds, space::host_free(pool), held);
    if room.state != State::Ok {
        room.details.extend(status.readers.iter().map(ToString::to_string));
    }
    // Whatever uses the pool hangs with its owner.
    let mut checks = stale.map_or_else(Vec::new, |stale| vec![Check::new("owner", State::Critical, stale)]);
    checks.extend([disk::writes(&status, remote, icecore::storage::is_medium_read_only(pool)), room]);
    checks.extend(snapshots(&entries, &ages, thresholds, now));
    checks.push(disk::incidents(&status, icecore::logged_incidents(pool), now));
    checks.push(disk::scrub(&status, &thresholds.scrub, now));
    checks.push(disk::copies(&status));
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
        let state = limits.judge(seconds);
        let check = Check::new(format!("age_{}", dataset.name), state, text);
        let check = if state == State::Ok { check } else { check.next("icecore snapshot -a") };
        checks.push(check.with(format!("age_{}", dataset.name), seconds, "s", limits.perfdata()));
    }
    checks
}

fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.get().saturating_sub(from.get()) / 1_000_000_000).unwrap_or(0)
}

fn show(pool: &Path, worst: State, checks: &[Check], as_json: bool) -> anyhow::Result<()> {
    let mut output = Output::new();
    if as_json {
        let checks: Vec<_> = checks.iter().map(|check| check.document(pool)).collect();
        output.document("monitor", pool, json!({ "state": worst.name(), "checks": checks }))?;
        return output.finish();
    }
    // The worst first; what is well is only worth a word if all is.
    let mut shown: Vec<&Check> = checks.iter().filter(|check| check.state == worst).collect();
    if worst == State::Ok {
        shown.retain(|check| !check.name.starts_with("age_") || checks.len() <= 6);
    }
    let summary: Vec<String> = shown.iter().take(5).map(|check| check.line(pool)).collect();
    let summary = summary.join("; ");
    let perfdata: Vec<&str> = checks.iter().flat_map(|check| &check.perfdata).map(String::as_str).collect();
    let perfdata = if perfdata.is_empty() { String::new() } else { format!(" | {}", perfdata.join(" ")) };
    let of_pool = if pool.as_os_str().is_empty() { String::new() } else { format!("{}: ", pool.display()) };
    output.line(format!("ICECORE {} - {}{summary}{perfdata}", worst.name(), plain(&of_pool)))?;
    for check in checks.iter().filter(|check| check.state != State::Ok) {
        output.line(format!("{}: {}", check.state.name(), check.line(pool)))?;
        for detail in &check.details {
            output.line(format!("  {}", plain(detail)))?;
        }
    }
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senseless_command_line_may_ask_for_a_document() {
        let wants =
            |arguments: &[&str], variable: Option<&str>| wants_document(arguments, variable.map(OsStr::new));
        assert!(wants(&["icecore", "monitor", "--json", "--bogus"], None));
        assert!(wants(&["icecore", "monitor", "--bogus"], Some("1")));
        assert!(!wants(&["icecore", "monitor", "--bogus", "--", "--json"], None));
        for off in ["", "0", "False", "no"] {
            assert!(!wants(&["icecore", "monitor", "--bogus"], Some(off)), "{off}");
        }
    }

    #[test]
    fn what_the_disk_refuses_is_critical_and_what_the_system_refuses_is_unknown() {
        let pool = Path::new("/pool");
        let state = |code| unreachable(pool, &Failure::new(code, "it is so").into()).state;
        for (code, expected) in [
            (ErrorCode::Damaged, State::Critical),
            (ErrorCode::DiskError, State::Critical),
            (ErrorCode::Io, State::Unknown),
            (ErrorCode::PoolInUse, State::Unknown),
            (ErrorCode::NotAPool, State::Unknown),
        ] {
            assert_eq!(state(code), expected, "{code:?}");
        }
    }
}
