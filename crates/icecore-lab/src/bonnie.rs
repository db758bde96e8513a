//! bonnie++(8): sequential writing, rewriting and reading of new files, and seeks.

use crate::error::{Error, Result};
use crate::options::Options;
use crate::tool;
use std::path::Path;
use std::process::Command;

/// What it measures, its unit, and the field of the line that it prints (`bon_csv2html(1)`, format 2).
pub(crate) const FIGURES: [(&str, &str, usize); 4] =
    [("write", "KiB/s", 11), ("rewrite", "KiB/s", 13), ("read", "KiB/s", 17), ("seeks", "seeks/s", 19)];

/// The figures, in the order of [`FIGURES`]; `None` for one that took too short a time to tell.
pub(crate) type Figures = [Option<f64>; FIGURES.len()];

/// Runs it on files of `bytes` in all, a multiple of 1 MiB. It is said to have half of that as memory, so
/// that it accepts the size.
pub(crate) fn run(folder: &Path, bytes: u64, seed: u64, options: &Options) -> Result<Figures> {
    let mut command = Command::new("bonnie++");
    let mebibytes = bytes >> 20;
    command
        .arg("-d")
        .arg(folder)
        .args(["-q", "-f", "-n", "0", "-m", "lab"])
        .args(["-s", &format!("{mebibytes}M"), "-r", &format!("{}M", mebibytes / 2)])
        .args(["-z", &(seed % (1 << 31)).to_string()]);
    // It refuses to run as root unless asked to, and no other user may ask.
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let printed = tool::output(&mut command, options)?;
    parse(&printed).ok_or_else(|| Error::Child {
        job: format!("bonnie++ in {}", folder.display()),
        reason: format!("it printed no figures: {}", tool::tail(&printed)),
    })
}

fn parse(printed: &str) -> Option<Figures> {
    let line = printed.lines().find(|line| line.split(',').count() > FIGURES[3].2)?;
    let fields: Vec<&str> = line.split(',').collect();
    fields[0].parse::<f64>().ok().filter(|version| (1.98..3.0).contains(version))?;
    // A phase that was too short has plus signs.
    Some(FIGURES.map(|(.., field)| fields[field].parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_bonnie_is_read() {
        let line = "1.98,2.00,lab,1,1790000000,256M,,8192,5,,,523001,40,210002,22,,,+++++,+++,5123,99,,,,,,,,,,,,,,,,,\
                    ,,,7us,8us,,9us,10us,11us,,,,,,\n";
        assert_eq!(parse(line), Some([Some(523_001.0), Some(210_002.0), None, Some(5_123.0)]));
        assert_eq!(parse("Can't open file ./Bonnie.1\n"), None);
    }
}
