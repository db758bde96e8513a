//! `icecore lab report`

use super::{read, with_exit_code};
use crate::exit;
use crate::output::say;
use anyhow::Context as _;
use clap::Args;
use icecore_lab::page::{self, Document};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
The page holds everything: it needs no network and no other file. Names of
files become names of results, or their paths where two names are the same.

Example:
  icecore lab report shock.json blog.json -o report.html")]
pub struct Arguments {
    /// What `icecore lab run NAME --json` printed
    #[arg(value_name = "FILE", required = true)]
    results: Vec<PathBuf>,

    /// Where to write the page
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let document =
        |path: &PathBuf| Ok(Document { name: name(path, &arguments.results), report: read(path)? });
    let documents: Vec<Document> = arguments.results.iter().map(document).collect::<anyhow::Result<_>>()?;
    let page = page::render(&documents, &[]).map_err(with_exit_code)?;
    let output = arguments.output.display();
    let is_result = |path: &PathBuf| path.canonicalize().ok() == arguments.output.canonicalize().ok();
    if arguments.output.exists() && arguments.results.iter().any(is_result) {
        return Err(exit::usage(format!("{output} is one of the results: name another file with --output")));
    }
    std::fs::write(&arguments.output, page).with_context(|| format!("cannot write {output}"))?;
    let count = documents.len();
    say(format!("{output}: {count} result{}", if count == 1 { "" } else { "s" }))
}

/// The name of the file without its extension, or the path where another file has that name, too.
fn name(path: &Path, all: &[PathBuf]) -> String {
    let same = |other: &&PathBuf| other.file_stem() == path.file_stem();
    let name = path.file_stem().filter(|_| all.iter().filter(same).count() == 1);
    name.unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_in_files_of_one_name_are_distinguished_by_their_paths() {
        let paths = ["old/full.json", "new/full.json", "new/shock.json"].map(PathBuf::from);
        let names = paths.each_ref().map(|path| name(path, &paths));
        assert_eq!(names, ["old/full.json", "new/full.json", "shock"]);
    }
}
