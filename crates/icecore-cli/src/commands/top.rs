//! `icecore top`

use super::{finish, take};
use crate::format;
use crate::output::Output;
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::admin::protocol::Status;
use icecore::admin::{Access, Request, Response};
use icecore::units::ByteLength;
use icecore::{Quantiles, ReaderHold, Statistics};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Moves the cursor home and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Readers that are shown, of those that keep something.
const READERS_MAX: usize = 5;

#[derive(Args, Debug)]
#[command(after_help = "\
Shows what the process that has the pool open is doing: throughput, latency,
bytes written to disk for each byte written by callers, and what collection
does, and why. Ends with Ctrl-C, or after -n views. Any process may open the
pool meanwhile; while none has it open, there are no rates.

Example:
  icecore top /srv/pool
  icecore top -n 10 --interval 5 --json /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Seconds between two views
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// End after so many views
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,

    /// Print a JSON document on one line for each view
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    let bounds = 0.01..=86_400.0;
    if bounds.contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(format!("{text} is not between 0.01 and 86400 seconds"))
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let clears = !arguments.json && std::io::stdout().is_terminal();
    let mut connection = None;
    let mut before: Option<(Instant, Box<Status>)> = None;
    let mut shown = 0;
    loop {
        let status = look(&pool, &mut connection)?;
        let now = Instant::now();
        let owned = connection.is_some();
        // Counters begin with each owner.
        let same = before.filter(|(_, former)| owned && former.process == status.process);
        let (since, former) =
            same.map_or((None, Statistics::default()), |(at, former)| (Some(now - at), former.statistics));
        let view = View {
            now: &status.statistics,
            former,
            since,
            owner: owned.then_some(status.process),
            readers: &status.readers,
        };
        let mut output = Output::new();
        if arguments.json {
            output.line(view.document(&status.path).to_string())?;
        } else {
            if clears {
                output.bytes(CLEAR.as_bytes())?;
            }
            view.lines(&status.path).iter().try_for_each(|line| output.line(line))?;
        }
        output.finish()?;
        before = Some((now, status));
        shown += 1;
        if arguments.count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
        std::thread::sleep(arguments.interval);
    }
}

/// One look at the counters. A connection to an owner is kept for the next one; a pool that no process has
/// open is closed again at once, so that it is in no way.
fn look(pool: &Path, connection: &mut Option<Access>) -> anyhow::Result<Box<Status>> {
    let mut access = match connection.take() {
        Some(access) => access,
        None => open_to_read(pool)?,
    };
    let response = access.call(Request::Status);
    let response = if access.is_remote() {
        *connection = Some(access);
        response?
    } else {
        finish(access, response)?
    };
    Ok(take!(response, Response::Status(status) => status))
}

/// Counters at two moments. Without a former one, rates are not known.
struct View<'a> {
    now: &'a Statistics,
    former: Statistics,
    since: Option<Duration>,
    /// The process that has the pool open, if one has.
    owner: Option<u32>,
    readers: &'a [ReaderHold],
}

impl View<'_> {
    fn per_second(&self, counter: impl Fn(&Statistics) -> u64) -> f64 {
        let Some(since) = self.since else { return 0.0 };
        let grown = counter(self.now).saturating_sub(counter(&self.former));
        #[expect(clippy::cast_precision_loss, reason = "a rate to be looked at")]
        let grown = grown as f64;
        grown / since.as_secs_f64().max(1e-3)
    }

    /// Since the view before, if callers wrote anything.
    fn amplification_now(&self) -> Option<f64> {
        let written = self.per_second(|one| one.write_bytes);
        (written > 0.0).then(|| self.per_second(Statistics::written_bytes) / written)
    }

    /// What a person reads.
    fn lines(&self, path: &str) -> Vec<String> {
        let now = self.now;
        let size = |bytes: u64| format::size(ByteLength(bytes));
        let idle = match crate::output::stale() {
            _ if self.owner.is_some() => "",
            Some(_) => ", whose owner does not answer: this is what was on disk",
            None => ", which no process has open",
        };
        let mut lines = vec![format!("pool       {path}{idle}")];
        lines.extend(now.failure.iter().map(|failure| format!("reads only, since a failure: {failure}")));
        lines.push(format!(
            "space      {} live in {}; {} of {} segments free, {} about to be",
            size(now.live_bytes),
            size(now.segment_file_bytes),
            now.segments_free,
            now.segments,
            now.segments_vacated
        ));
        lines.push(format!(
            "callers    {} written, {} read, {:.0} flushes/s",
            self.rate(|one| one.write_bytes),
            self.rate(|one| one.read_bytes),
            self.per_second(|one| one.commits)
        ));
        lines.push(self.disk());
        let lately = self.amplification_now().map_or(String::new(), |now| format!(", {now:.2} now"));
        let amplification = now.write_amplification();
        lines.push(format!("amplified  {amplification:.2} since the pool was opened{lately}"));
        lines.push(format!("flush      {}", times(&now.commit_nanoseconds)));
        lines.push(format!("snapshot   {}", times(&now.snapshot_nanoseconds)));
        lines.push(format!(
            "collected  {} segments, {:.0} % full on average; {} left alone",
            now.segments_collected,
            now.collected_utilisation() * 100.0,
            now.segments_corrupt
        ));
        lines.push(format!("collector  {}", now.collector));
        lines.extend(self.readers.iter().take(READERS_MAX).map(|reader| format!("reader     {reader}")));
        lines
    }

    /// What is written to disk, by kind: all that the amplification counts.
    fn disk(&self) -> String {
        let kinds: [(Counter, &str); 5] = [
            (|one| one.logged_data_bytes + one.logged_header_bytes, "log"),
            (|one| one.node_bytes, "nodes"),
            (moved, "moved"),
            (Statistics::copied_bytes, "copies"),
            (|one| one.checkpoint_bytes + one.frame_bytes + one.ahead_bytes, "other"),
        ];
        let rates = kinds.map(|(counter, name)| format!("{} {name}", self.rate(counter)));
        format!("disk       {}", rates.join(", "))
    }

    /// A rate of bytes, for people.
    fn rate(&self, counter: Counter) -> String {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are not negative")]
        let bytes = self.per_second(counter) as u64;
        format!("{}/s", format::size(ByteLength(bytes)))
    }

    fn document(&self, path: &str) -> Value {
        let now = self.now;
        json!({
            "version": crate::output::DOCUMENT_VERSION,
            "command": "top",
            "pool": path,
            "owner": self.owner,
            "stale": crate::output::stale(),
            "seconds": self.since.map(|since| since.as_secs_f64()),
            "write_bytes_per_s": self.per_second(|one| one.write_bytes),
            "read_bytes_per_s": self.per_second(|one| one.read_bytes),
            "disk_bytes_per_s": self.per_second(Statistics::written_bytes),
            "moved_bytes_per_s": self.per_second(moved),
            "flushes_per_s": self.per_second(|one| one.commits),
            "write_amplification": now.write_amplification(),
            "write_amplification_now": self.amplification_now(),
            "flush_nanoseconds": now.commit_nanoseconds,
            "snapshot_nanoseconds": now.snapshot_nanoseconds,
            "live_bytes": now.live_bytes,
            "segments": now.segments,
            "segments_free": now.segments_free,
            "segments_vacated": now.segments_vacated,
            "segments_collected": now.segments_collected,
            "collected_utilisation": now.collected_utilisation(),
            "segments_corrupt": now.segments_corrupt,
            "collector": now.collector,
            "failure": now.failure,
            "readers": self.readers.iter().map(super::status::reader).collect::<Vec<_>>(),
        })
    }
}

/// What is counted.
type Counter = fn(&Statistics) -> u64;

fn moved(statistics: &Statistics) -> u64 {
    statistics.moved_data_bytes + statistics.moved_header_bytes + statistics.moved_node_bytes
}

fn times(quantiles: &Quantiles) -> String {
    if quantiles.count == 0 {
        return "none yet".to_owned();
    }
    let [median, p99, max] = [quantiles.median, quantiles.p99, quantiles.max].map(format::duration);
    format!("median {median}, p99 {p99}, longest {max}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_views() {
        let former = Statistics { write_bytes: 100, logged_data_bytes: 100, ..Statistics::default() };
        let now = Statistics { write_bytes: 300, logged_data_bytes: 700, ..Statistics::default() };
        let view =
            View { now: &now, former, since: Some(Duration::from_secs(2)), owner: Some(1), readers: &[] };
        assert!((view.per_second(|one| one.write_bytes) - 100.0).abs() < 1e-9);
        assert!((view.amplification_now().unwrap() - 3.0).abs() < 1e-9);
        let first = View { now: &now, former: Statistics::default(), since: None, owner: None, readers: &[] };
        assert_eq!(first.amplification_now(), None);
    }

    /// The sum of the kinds is what the amplification says.
    #[test]
    fn the_disk_has_all_that_the_amplification_counts() {
        let mib = |count: u64| count << 20;
        let now = Statistics {
            write_bytes: mib(100),
            logged_data_bytes: mib(100),
            logged_header_bytes: mib(4),
            node_bytes: mib(8),
            moved_data_bytes: mib(30),
            moved_header_bytes: mib(1),
            moved_node_bytes: mib(1),
            copy_node_bytes: mib(8),
            copy_checkpoint_bytes: mib(2),
            copy_frame_bytes: mib(1),
            copy_data_bytes: mib(12),
            copy_restored_bytes: mib(17),
            checkpoint_bytes: mib(2),
            frame_bytes: mib(6),
            ahead_bytes: mib(8),
            ..Statistics::default()
        };
        let view = View {
            now: &now,
            former: Statistics::default(),
            since: Some(Duration::from_secs(1)),
            owner: Some(1),
            readers: &[],
        };
        let lines = view.lines("/srv/pool");
        let line = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap().as_str();
        assert_eq!(
            line("disk "),
            "disk       104M/s log, 8M/s nodes, 32M/s moved, 40M/s copies, 16M/s other"
        );
        assert_eq!(104 + 8 + 32 + 40 + 16, 200);
        assert_eq!(line("amplified "), "amplified  2.00 since the pool was opened, 2.00 now");
    }

    #[test]
    fn what_collection_does_and_why_is_reported_as_it_is() {
        let doing = "emptying segment.00000007, 12 % full (409600 bytes): nothing else to do";
        let now = Statistics {
            collector: doing.to_owned(),
            segments_collected: 5,
            segments_corrupt: 1,
            collected_bytes: 1000,
            moved_data_bytes: 200,
            moved_node_bytes: 50,
            ..Statistics::default()
        };
        let view = View { now: &now, former: Statistics::default(), since: None, owner: None, readers: &[] };
        let lines = view.lines("/srv/pool");
        assert_eq!(lines[0], "pool       /srv/pool, which no process has open");
        assert!(lines.contains(&format!("collector  {doing}")), "{lines:?}");
        let collected = "collected  5 segments, 25 % full on average; 1 left alone";
        assert!(lines.iter().any(|line| line == collected), "{lines:?}");
        assert_eq!(view.document("/srv/pool")["collector"], doing);
    }

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
