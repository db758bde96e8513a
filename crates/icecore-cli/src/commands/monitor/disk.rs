//! What the disk did to the pool, and what there is to do about it.

use super::check::{Check, State};
use super::seconds_between;
use super::thresholds::{Limits, age_text};
use crate::commands::copies::sentence;
use icecore::admin::protocol::Status;
use icecore::units::Timestamp;
use icecore::{Incident, Statistics};
use std::collections::BTreeMap;

/// Incidents that are listed one by one.
const LISTED_MAX: usize = 5;

/// The message for a filesystem that takes no writes.
const READ_ONLY: &str = "its filesystem is read-only";

/// Whether the pool takes writes. `remote`: another process has it open. `medium_read_only`: see
/// [`icecore::storage::is_medium_read_only`]. Of a pool that is open elsewhere that says nothing: it may be
/// reached there by another mount.
pub fn writes(status: &Status, remote: bool, medium_read_only: bool) -> Check {
    if let Some(failure) = &status.statistics.failure {
        let text = format!(
            "takes no writes since a failure: {failure}; mend the disk, stop process {} and start it again",
            status.process
        );
        let check = Check::new("writes", State::Critical, text).with("failed", "1", "", ["", ""]);
        return check.next("icecore status");
    }
    if medium_read_only && !remote {
        let text =
            format!("takes no writes: {READ_ONLY}; mend the disk, if that is why, and mount it for writing");
        return Check::new("writes", State::Critical, text).with("failed", "1", "", ["", ""]);
    }
    // What we opened ourselves we opened only to read.
    let check = if status.read_only && remote {
        Check::new("writes", State::Warning, format!("is opened read-only by process {}", status.process))
    } else {
        Check::new("writes", State::Ok, "takes writes")
    };
    check.with("failed", "0", "", ["", ""])
}

/// What went wrong and was not followed by a scrub that found all as it should be: by what the owner
/// remembers, and by `logged`, the file that outlives it. Such a scrub ends the alarm.
pub fn incidents(status: &Status, logged: Vec<Incident>, now: Timestamp) -> Check {
    let open = open_incidents(status, logged);
    let unhealed: Vec<&Incident> = open.iter().filter(|incident| incident.unhealed).collect();
    let (state, text) = match (open.as_slice(), unhealed.as_slice()) {
        ([], _) => (State::Ok, "no errors of the disk".to_owned()),
        ([.., last], []) => {
            (State::Warning, format!("{}, {}", counted(open.len(), "error"), latest(last, now)))
        }
        (_, [.., last]) => {
            let places = counted(unhealed.len(), "place");
            (State::Critical, format!("damage in {places} that nothing healed, {}", latest(last, now)))
        }
    };
    let statistics = &status.statistics;
    let none = ["", ""];
    let mut check = Check::new("incidents", state, text)
        .with("incidents", open.len(), "", ["0", ""])
        .with("unhealed", unhealed.len(), "", ["", "0"])
        .with("damaged_reads", statistics.damaged_reads, "c", none)
        .with("failed_reads", statistics.failed_reads, "c", none)
        .with("failed_writes", statistics.failed_writes, "c", none)
        .with("failed_flushes", statistics.failed_flushes, "c", none);
    if state != State::Ok {
        check = check.next("icecore scrub").because("it says what is lost, and ends this when all is clean");
    }
    // The last ones, what is lost first.
    let of_kind = |kind: bool| open.iter().rev().filter(move |incident| incident.unhealed == kind);
    for incident in of_kind(true).chain(of_kind(false)).take(LISTED_MAX) {
        check = check.detail(format!("{} {}", incident.last.to_rfc3339(), incident.what));
    }
    check
}

/// Each sentence once, the one met last at the end.
fn open_incidents(status: &Status, logged: Vec<Incident>) -> Vec<Incident> {
    let over = status.last_scrub.and_then(|last| last.clean);
    let mut open: BTreeMap<String, Incident> = BTreeMap::new();
    // What the owner knows is newer than what it wrote down.
    for incident in logged.into_iter().chain(status.incidents.iter().cloned()) {
        let is_over = over.is_some_and(|over| incident.last < over);
        if !is_over && !is_of_copies(&incident, &status.statistics) {
            open.insert(incident.what.clone(), incident);
        }
    }
    let mut open: Vec<Incident> = open.into_values().collect();
    open.sort_by_key(|incident| incident.last);
    open
}

/// What the folder of the copies refused. Whether that is over the copies themselves say: see [`copies`].
fn is_of_copies(incident: &Incident, statistics: &Statistics) -> bool {
    let folder = statistics.copies.folder.as_deref();
    let of_copies =
        incident.what.contains(" copy.") || folder.is_some_and(|folder| incident.what.contains(folder));
    incident.what.starts_with("cannot ") && !incident.what.starts_with("cannot read ") && of_copies
}

fn latest(incident: &Incident, now: Timestamp) -> String {
    let age = age_text(seconds_between(incident.last, now));
    format!("the last one {age} ago: {}", incident.what)
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// What the last scrub found, the one that goes on, and when. The next whole one has the last word.
pub fn scrub(status: &Status, limits: &Limits, now: Timestamp) -> Check {
    let mut check = ended_scrub(status, limits, now);
    if let Some(going) = status.scrubbing.filter(|going| going.damaged > 0)
        && check.state != State::Critical
    {
        check.state = State::Critical;
        check.text = format!("a scrub that goes on has found {} so far", blocks(going.damaged));
        return check.next("icecore status");
    }
    check
}

fn ended_scrub(status: &Status, limits: &Limits, now: Timestamp) -> Check {
    let Some(last) = status.last_scrub else {
        let state = if limits.is_empty() { State::Ok } else { State::Warning };
        let check = Check::new("scrub", state, "never scrubbed");
        return if state == State::Ok { check } else { check.next("icecore scrub") };
    };
    let seconds = seconds_between(last.when, now);
    let age = age_text(seconds);
    let by_age = limits.judge(seconds);
    let (state, text) = if last.damaged > 0 {
        let text =
            format!("the last scrub, {age} ago, found {}: what they held is lost", blocks(last.damaged));
        (State::Critical, text)
    } else if last.spare > 0 {
        let places = if last.spare == 1 { "1 place".to_owned() } else { format!("{} places", last.spare) };
        let text = format!(
            "the last scrub, {age} ago, found {places} damaged, and nothing lost: the disk may be failing"
        );
        (by_age.worse(State::Warning), text)
    } else if !last.complete {
        let state = if limits.is_empty() { State::Ok } else { State::Warning };
        (state, format!("the last scrub, {age} ago, was cut off"))
    } else {
        (by_age, format!("scrubbed {age} ago"))
    };
    let check = Check::new("scrub", state, text)
        .with("damaged", last.damaged, "", ["", "0"])
        .with("harmless", last.spare, "", ["0", ""])
        .with("scrub_age", seconds, "s", limits.perfdata());
    match state {
        State::Ok => check,
        _ if last.damaged > 0 => check
            .next("icecore scrub")
            .because("it names files and versions, and ends this when none is left"),
        _ => check.next("icecore scrub"),
    }
}

fn blocks(damaged: u64) -> String {
    if damaged == 1 { "1 damaged block".to_owned() } else { format!("{damaged} damaged blocks") }
}

/// Without copies that should be there, or do not count, nothing is lost yet.
pub fn copies(status: &Status) -> Check {
    let statistics = &status.statistics;
    let report = &statistics.copies;
    let state = if report.is_whole() { State::Ok } else { State::Warning };
    let text = if report.mode == "none" {
        "no second copies".to_owned()
    } else {
        format!("copies of {}", sentence(report))
    };
    let check = Check::new("copies", state, text)
        .with("healed", statistics.healed_places, "c", ["", ""])
        .with("copies_missing", statistics.copies_missing, "", ["0", ""]);
    if state == State::Ok { check } else { check.next("icecore copies --restore") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::admin::LastScrub;
    use icecore::units::PoolId;
    use icecore::{CopiesReport, ScrubProgress};

    fn status() -> Status {
        let copies = CopiesReport { mode: "metadata".into(), ..CopiesReport::default() };
        Status {
            path: "/pool".into(),
            id: PoolId([0; 16]),
            process: 7,
            program: "0".into(),
            read_only: false,
            last_scrub: None,
            scrubbing: None,
            incidents: Vec::new(),
            readers: Vec::new(),
            snapshots_hold: false,
            statistics: Statistics { copies, ..Statistics::default() },
        }
    }

    fn scrubbed(began: i64, damaged: u64, spare: u64) -> Option<LastScrub> {
        let (when, began) = (Timestamp(began + 10), Timestamp(began));
        let clean = (damaged == 0 && spare == 0).then_some(began);
        Some(LastScrub { when, began, verified: 1, damaged, spare, complete: true, clean })
    }

    fn incident(last: i64, what: &str, unhealed: bool) -> Incident {
        let last = Timestamp(last);
        Incident { when: Timestamp(1), last, what: what.into(), times: 2, unhealed }
    }

    const NOW: Timestamp = Timestamp(3_600_000_000_000);

    #[test]
    fn a_pool_that_has_failed_is_critical_whatever_process_has_it_open() {
        let mut status = status();
        status.statistics.failure = Some("cannot flush segment.00000001".into());
        status.read_only = true;
        for remote in [false, true] {
            let check = writes(&status, remote, false);
            assert_eq!(check.state, State::Critical);
            assert!(check.text.contains("cannot flush segment.00000001") && check.text.contains("process 7"));
        }
        status.statistics.failure = None;
        assert_eq!(writes(&status, true, false).state, State::Warning);
        assert_eq!(writes(&status, false, false).state, State::Ok);
    }

    #[test]
    fn a_filesystem_that_is_read_only_is_critical_for_a_pool_that_no_process_has_open() {
        let check = writes(&status(), false, true);
        assert!(check.state == State::Critical && check.text.contains(READ_ONLY), "{}", check.text);
        assert_eq!(writes(&status(), true, true).state, State::Ok);
    }

    #[test]
    fn what_was_met_counts_until_a_clean_scrub_that_began_later() {
        let state = |status: &Status, logged: Vec<Incident>| incidents(status, logged, NOW).state;
        let mut status = status();
        assert_eq!(state(&status, vec![]), State::Ok);
        status.incidents = vec![incident(100, "healed from its copy: damage in x", false)];
        assert_eq!(state(&status, vec![]), State::Warning);
        status.incidents.push(incident(90, "damage in y", true));
        let check = incidents(&status, vec![], NOW);
        assert_eq!(check.state, State::Critical);
        assert!(check.text.contains("1 place") && check.text.ends_with("damage in y"), "{}", check.text);
        // It went over these places before they were met, found something, or was cut off.
        for last in [scrubbed(95, 0, 0), scrubbed(101, 0, 1), scrubbed(101, 1, 0)] {
            status.last_scrub = last;
            assert_ne!(state(&status, vec![]), State::Ok);
        }
        status.last_scrub =
            scrubbed(101, 0, 0).map(|last| LastScrub { complete: false, clean: None, ..last });
        assert_eq!(state(&status, vec![]), State::Critical);
        status.last_scrub = scrubbed(101, 0, 0);
        assert_eq!(state(&status, vec![]), State::Ok);
        // What a later one found is nothing of before.
        let clean = status.last_scrub.and_then(|last| last.clean);
        status.last_scrub = scrubbed(200, 0, 1).map(|last| LastScrub { clean, ..last });
        assert_eq!(state(&status, vec![]), State::Ok);
        // Of a process that has gone.
        assert_eq!(state(&status, vec![incident(50, "cannot read z", false)]), State::Ok);
        assert_eq!(state(&status, vec![incident(150, "cannot read z", false)]), State::Warning);
    }

    #[test]
    fn the_owner_knows_better_than_the_file_what_was_healed() {
        let mut status = status();
        status.incidents = vec![incident(200, "damage in x", false)];
        let check = incidents(&status, vec![incident(200, "damage in x", true)], NOW);
        assert_eq!(check.state, State::Warning);
        assert!(check.text.starts_with("1 error"), "{}", check.text);
    }

    #[test]
    fn what_the_folder_of_copies_refused_is_reported_by_the_copies() {
        let mut status = status();
        status.statistics.copies.folder = Some("/mirror".into());
        status.incidents = vec![
            incident(1, "cannot open /mirror: gone", false),
            incident(1, "cannot write copy.00000001: full", false),
        ];
        assert_eq!(incidents(&status, vec![], NOW).state, State::Ok);
        status.incidents.push(incident(1, "cannot read copy.00000001: bad sector", false));
        assert_eq!(incidents(&status, vec![], NOW).state, State::Warning);
        assert_eq!(copies(&status).state, State::Ok);
        status.statistics.copies.degraded_since = Some(Timestamp(1));
        status.statistics.copies.behind = true;
        let check = copies(&status);
        assert_eq!(check.state, State::Warning);
        assert!(check.text.contains("no copy counts"), "{}", check.text);
    }

    #[test]
    fn scrubs_tell_what_is_lost_what_was_corrupt_and_what_they_met_so_far() {
        let limits = Limits::default();
        let judge = |status: &Status| scrub(status, &limits, NOW).state;
        let mut status = status();
        assert_eq!(judge(&status), State::Ok);
        for (damaged, spare, state) in
            [(0, 0, State::Ok), (0, 2, State::Warning), (1, 0, State::Critical), (1, 2, State::Critical)]
        {
            status.last_scrub = scrubbed(1, damaged, spare);
            assert_eq!(judge(&status), state, "{damaged} {spare}");
        }
        status.last_scrub = scrubbed(1, 0, 0);
        status.scrubbing = Some(ScrubProgress { done: 1, total: 2, damaged: 0 });
        assert_eq!(judge(&status), State::Ok);
        status.scrubbing = Some(ScrubProgress { done: 1, total: 2, damaged: 3 });
        let check = scrub(&status, &limits, NOW);
        assert!(
            check.state == State::Critical && check.text.contains("3 damaged blocks so far"),
            "{}",
            check.text
        );
    }
}
