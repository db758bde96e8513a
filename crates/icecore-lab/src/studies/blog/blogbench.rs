//! blogbench(8), the program that the mix imitates.

use super::mix::Crew;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::tool;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What one run of it found out.
#[derive(PartialEq, Debug)]
pub(super) struct Found {
    pub written: Counted,
    pub read: Counted,
}

/// What it counts of one kind.
#[derive(PartialEq, Debug, Default)]
pub(super) struct Counted {
    /// Blogs in the whole run: the final score.
    pub score: f64,
    /// Files in each period.
    pub files: Vec<f64>,
}

/// Runs it in a folder for so many periods, each of so many *whole* seconds. It numbers its blogs from 0 on,
/// so a second run in the same folder writes those of the first anew.
///
/// # Errors
/// It is not there or fails, writes or reads no blog, or complains, such as of a full file system.
pub(super) fn run(
    folder: &Path,
    crew: Crew,
    period: Duration,
    periods: u32,
    options: &Options,
) -> Result<Found> {
    let mut command = Command::new("blogbench");
    command.arg("-d").arg(folder);
    // The long form of -W takes no number.
    for (option, number) in [
        ("-w", crew.writers),
        ("-W", crew.rewriters),
        ("-c", crew.commenters),
        ("-r", crew.readers),
        ("-s", period.as_secs()),
        ("-i", periods.into()),
    ] {
        command.args([option, &number.to_string()]);
    }
    let printed = tool::output(&mut command, options)?;
    parse(&printed, periods as usize)
        .map_err(|reason| Error::Child { job: format!("blogbench in {}", folder.display()), reason })
}

/// Begins the lines that say what it is going to do.
const PREAMBLE: [&str; 5] =
    ["Frequency = ", "Scratch dir = [", "Spawning ", "Benchmarking for ", "The test will run during "];
/// Stands above the table, with more blanks.
const HEADER: &str = "Nb blogs R articles W articles R pictures W pictures R comments W comments";
const WRITE_SCORE: &str = "Final score for writes:";
const READ_SCORE: &str = "Final score for reads :";

/// Takes what it printed apart, or says what is wrong with that.
///
/// It goes on after most failures, and its exit code does not show them: what it says about one stands in the
/// midst of its table, often without an end of the line. Then its figures are those of less work.
fn parse(printed: &str, periods: usize) -> std::result::Result<Found, String> {
    let (mut written, mut read) = (Counted::default(), Counted::default());
    let (mut writes, mut reads) = (None, None);
    for line in printed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(score) = line.strip_prefix(WRITE_SCORE).and_then(number) {
            writes = Some(score);
        } else if let Some(score) = line.strip_prefix(READ_SCORE).and_then(number) {
            reads = Some(score);
        } else if let Some(row) = Row::of(line) {
            written.files.push(row.written);
            read.files.push(row.read);
        } else if !is_known(line) {
            return Err(complaint(line));
        }
    }
    let end = tool::tail(printed);
    let (Some(writes), Some(reads), true) = (writes, reads, printed.ends_with('\n')) else {
        return Err(format!("what it printed is cut short: {end}"));
    };
    let count = written.files.len();
    if count != periods {
        return Err(format!("it printed {count} of {periods} periods: {end}"));
    }
    // Nothing can be related to nothing.
    if writes == 0.0 || reads == 0.0 {
        return Err(format!("it wrote no blog, or read none: {end}"));
    }
    (written.score, read.score) = (writes, reads);
    Ok(Found { written, read })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<u64>().ok().map(|number| number as f64)
}

/// The files of one period.
struct Row {
    written: f64,
    read: f64,
}

impl Row {
    /// A row of the table: all blogs so far, and then the files of the period.
    fn of(line: &str) -> Option<Self> {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
        let [_, read_articles, articles, read_pictures, pictures, read_comments, comments]: [f64; 7] =
            numbers?.try_into().ok()?;
        let (written, read) = (articles + pictures + comments, read_articles + read_pictures + read_comments);
        Some(Self { written, read })
    }
}

fn is_known(line: &str) -> bool {
    line.split_whitespace().eq(HEADER.split(' ')) || PREAMBLE.iter().any(|begin| line.starts_with(begin))
}

/// Most characters of a complaint that are shown. It may be a thousand complaints in one line.
const SHOWN: usize = 200;

fn complaint(line: &str) -> String {
    let shown: String = line.chars().take(SHOWN).collect();
    let advice = if line.contains("No space left on device") {
        "; its file system is too small for it (--size)"
    } else {
        ""
    };
    format!("it printed {shown:?} among its figures{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "
Frequency = 10 secs
Scratch dir = [/mnt/bench]
Spawning 3 writers...
Spawning 1 rewriters...
Spawning 5 commenters...
Spawning 100 readers...
Benchmarking for 3 iterations.
The test will run during 0 minutes.

  Nb blogs   R articles    W articles    R pictures    W pictures    R comments    W comments
        40         9110          2031          7204          2102          5003          4100
        41           12             3             4             0             0             1
       112        18233          3517         15100          3602         11040          8001

Final score for writes:           112
Final score for reads :          2874

";

    #[test]
    fn scores_and_periods_are_read() {
        let found = parse(PRINTED, 3).expect("a table");
        let written = Counted { score: 112.0, files: vec![8233.0, 4.0, 15_120.0] };
        let read = Counted { score: 2874.0, files: vec![21_317.0, 16.0, 44_373.0] };
        assert_eq!(found, Found { written, read });
    }

    #[test]
    fn a_report_that_is_cut_short_is_refused() {
        // One of the two line ends behind the last number is enough.
        for end in 0..PRINTED.len() - 1 {
            assert!(parse(&PRINTED[..end], 3).is_err(), "{:?}", &PRINTED[..end]);
        }
        parse(&PRINTED[..PRINTED.len() - 1], 3).expect("whole");
        let said = parse(&PRINTED.replace("Final", "Fin"), 3).expect_err("no scores");
        assert!(said.contains("Fin score for writes"), "{said}");
        for (periods, reason) in [(4, "3 of 4 periods"), (2, "3 of 2 periods")] {
            let said = parse(PRINTED, periods).expect_err("not as many");
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn complaints_are_found_where_they_stand() {
        let full = "write(): No space left on device";
        for (before, with) in [
            // It ends no line after an error of the system.
            ("        41 ", format!("{full}{full}        41 ")),
            ("  Nb blogs", format!("{full}  Nb blogs")),
            // The end of this line is printed apart.
            ("W comments\n", format!("W comments{full}\n")),
            ("Final score for writes", format!("{full}Final score for writes")),
        ] {
            let said = parse(&PRINTED.replacen(before, &with, 1), 3).expect_err("it complains");
            assert!(said.contains(full) && said.contains("--size"), "{said}");
        }
        let files =
            PRINTED.replacen("\n  Nb", "\nopen(\"blog-7/article-3.xml.tmp\"): Too many open files\n  Nb", 1);
        let said = parse(&files, 3).expect_err("it complains");
        assert!(said.contains("article-3.xml.tmp") && !said.contains("--size"), "{said}");
        let many = PRINTED.replacen("        41 ", &"close(): Disk quota exceeded ü".repeat(1000), 1);
        assert!(parse(&many, 3).expect_err("it complains").len() < 500);
    }

    #[test]
    fn odd_numbers_are_no_figures() {
        for (before, with) in [
            ("  2031 ", "  -2031 "),
            ("  2031 ", "  20.31 "),
            ("  2031 ", "  nan "),
            ("  2031 ", "  99999999999999999999999 "),
            ("  2031 ", "  "),
            ("  2031 ", "  2031 2031 "),
            ("  112\n", "  -112\n"),
            ("  112\n", "\n"),
            ("  112\n", "  0\n"),
            ("  2874\n", "  0\n"),
        ] {
            let odd = PRINTED.replacen(before, with, 1);
            assert_ne!(odd, PRINTED);
            assert!(parse(&odd, 3).is_err(), "{odd}");
        }
        for other in ["", "\n", "\nblogbench 1.2\n\n--commenters=<n> (-c <n>): number of comments posters\n"]
        {
            assert!(parse(other, 0).is_err(), "{other:?}");
        }
    }
}
