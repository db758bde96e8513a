//! What blkparse(1) prints, in its default format, of the requests of a disk that blktrace(8) recorded:
//! device, processor, number, seconds, process, action, kind, and where and how much.
//!
//! ```text
//!   8,16   1       19     0.004166250  4162  Q  WS 8390656 + 32 [mariadbd]
//! ```

use super::{Events, Parsed};
use std::time::Duration;

const SECTOR_BYTES: u64 = 512;
/// A request is made. What becomes of it later (merged, issued, completed) is the same request again.
const QUEUED: &str = "Q";

/// How the line of the summary begins that counts what was recorded of a disk.
const SUMMARY: &str = "Events (";

/// What was printed so far.
#[derive(Default)]
pub(super) struct Log {
    has_summary: bool,
}

impl Log {
    /// Takes what was written and flushed from a line.
    pub(super) fn line(&mut self, events: &mut Events, line: &str) -> Parsed<()> {
        if is_event(line) {
            return event(events, line);
        }
        self.has_summary |= line.starts_with(SUMMARY);
        Ok(())
    }

    /// Refuses one without the summary, which stands behind all events.
    pub(super) fn end(&self) -> Parsed<()> {
        let reason = "it has no summary: it is cut short, or blkparse ran with -q and must run without";
        self.has_summary.then_some(()).ok_or_else(|| reason.to_owned())
    }
}

/// Whether a line is an event.
pub(super) fn is_event(line: &str) -> bool {
    let device = line.split_whitespace().next().and_then(|word| word.split_once(','));
    device.is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
}

fn event(events: &mut Events, line: &str) -> Parsed<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, _processor, _number, time, _process, action, rest @ ..] = &words[..] else {
        return Err("it has no action".to_owned());
    };
    if *action != QUEUED {
        return Ok(());
    }
    let at = Some(events.since_first(seconds(time)?)?);
    let kind = *rest.first().ok_or("it has no kind")?;
    // Kinds: blkparse(1), and `blk_fill_rwbs` of the kernel. `F` first asks for a flush before, and behind
    // `W` for one of what is written.
    if kind.starts_with('F') {
        events.flush(at);
    }
    let Some((_, flags)) = kind.split_once('W') else { return Ok(()) };
    // A flush alone is a write of nothing, without a place before the name of the process.
    if rest.get(1).is_some_and(|word| word.starts_with('[')) {
        return Ok(());
    }
    let number = |place: usize| -> Parsed<u64> {
        let word = rest.get(place).ok_or("a number is missing")?;
        word.parse().map_err(|_| format!("{word:?} is no number"))
    };
    let (sector, sectors) = (number(1)?, number(3)?);
    events.write(at, device, sector.saturating_mul(SECTOR_BYTES), sectors.saturating_mul(SECTOR_BYTES))?;
    if flags.contains('F') {
        events.flush(at);
    }
    Ok(())
}

fn seconds(word: &str) -> Parsed<Duration> {
    let no_time = || format!("{word:?} is no time");
    let (seconds, nanoseconds) = word.split_once('.').ok_or_else(no_time)?;
    let number = |digits: &str| digits.parse::<u32>().map_err(|_| no_time());
    let nanoseconds = number(nanoseconds)?;
    if nanoseconds >= 1_000_000_000 {
        return Err(no_time());
    }
    Ok(Duration::new(number(seconds)?.into(), nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::super::{Event, FILE_RANGE, Trace};
    use std::time::Duration;

    const PRINTED: &str = "\
  7,4    1        1     0.000000000  4162  Q  WS 11072 + 8 [fio]
  7,4    1        2     0.000001500  4162  G  WS 11072 + 8 [fio]
  7,4    1        3     0.000001900  4162  P   N [fio]
  7,4    0        1     0.250000000  4170  Q FWFS 96 + 32 [jbd2/loop4-8]
  7,4    1        4     0.300000000     0  C  WS 11072 + 8 [0]
  7,5    1        5     0.500000000  4162  Q FWS [fio]
  7,4    1        6     0.600000000  4162  Q   R 0 + 8 [fio]
  7,4    1        7     0.700000000  4162  Q  DS 0 + 2048 [fstrim]
  7,5    1        8     0.800000000  4162  Q   W 0 + 16 [kworker/u4:1]
  7,4    1        0     0.900000000     0  m   N cfq4162S / alloced
CPU0 (7,4):
 Reads Queued:           1,        4KiB\t Writes Queued:           3,       28KiB

Throughput (R/W): 4KiB/s / 28KiB/s
Events (7,4): 10 entries
Skips: 0 forward (0 -   0.0%)
";

    #[test]
    fn what_blkparse_prints_is_read() {
        let at = |milliseconds| Some(Duration::from_millis(milliseconds));
        let write = |place, bytes| Event::Write { place, bytes };
        let expected = [
            (at(0), write(11072 * 512, 4096)),
            (at(250), Event::Flush),
            (at(250), write(96 * 512, 16384)),
            (at(250), Event::Flush),
            (at(500), Event::Flush),
            (at(800), write(FILE_RANGE, 8192)),
        ];
        assert_eq!(Trace::parse(PRINTED).expect("read").events, expected);
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        let refused = |line: &str| Trace::parse(&format!("{line}\n")).expect_err("refused");
        assert!(refused("  8,0 1 1 0.000000000 7 Q WS 8 + x [a]").contains("line 1: \"x\" is no number"));
        assert!(refused("  8,0 1 1 0.000000000 7 Q WS 8").contains("line 1: a number is missing"));
        assert!(refused("  8,0 1 1 0 7 Q WS 8 + 8 [a]").contains("\"0\" is no time"));
        assert!(refused("  8,0 1 1 0.9999999999 7 Q WS 8 + 8 [a]").contains("is no time"));
        assert!(refused("  8,0 1 1").contains("no action"));
        assert!(refused("  8,0 1 1 0.000000000 7 Q").contains("no kind"));
        let read = "  8,0 1 1 0.000000000 7 Q R 0 + 8 [a]\nEvents (8,0): 1 entries";
        assert!(refused(read).contains("no writes"));
        let huge = format!("  8,0 1 1 0.000000000 7 Q W {} + 8 [a]", u64::MAX);
        assert!(refused(&huge).contains("no write"));
    }

    #[test]
    fn a_cut_before_the_summary_is_refused() {
        let summary = PRINTED.find(super::SUMMARY).expect("it has one");
        for end in 0..PRINTED.len() {
            assert!(Trace::parse(&PRINTED[..end]).is_err() || end > summary, "cut at {end}");
        }
        let events = &PRINTED[..PRINTED.find("CPU0").expect("it follows")];
        let reason = Trace::parse(events).expect_err("it is cut short");
        assert!(reason.contains("no summary: it is cut short, or blkparse ran with -q"), "{reason}");
    }
}
