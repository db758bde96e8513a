//! The guides and the program say the same: what is to be typed, and what is printed.

use crate::fixture::program;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| files_below(folder, extension));
    files
        .into_iter()
        .filter(|file| file.extension().is_some_and(|has| has == extension))
        .chain(below)
        .collect()
}

/// The commands in the `sh` blocks of a page, one a line, without comments.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in page.split("\n```sh\n").skip(1) {
        let block = block.split("\n```").next().unwrap().replace("\\\n", " ");
        let lines = block.lines().map(|line| line.split(" #").next().unwrap().trim());
        found.extend(lines.filter(|line| !line.starts_with('#')).map(str::to_owned));
    }
    found
}

/// Of a line of a shell, each use of the program: its words up to what ends a command.
fn uses(line: &str) -> Vec<Vec<&str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut is_open = false;
    let mut is_first = true;
    for word in line.split_whitespace() {
        let ends = matches!(word, "|" | "&&" | "||" | ";" | ">" | "<" | "&" | "do" | "sudo");
        if ends {
            (is_open, is_first) = (false, true);
        } else if word == "icecore" && is_first {
            (is_open, is_first) = (true, false);
            found.push(Vec::new());
        } else if is_open && let Some(words) = found.last_mut() {
            words.push(word);
        } else {
            is_first = word.contains('=');
        }
    }
    found
}

/// Help texts, each asked for once.
#[derive(Default)]
struct Helps(BTreeMap<String, Option<String>>);

impl Helps {
    fn of(&mut self, command: &str) -> Option<String> {
        let ask = || {
            let output = program().args([command, "--help"]).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        self.0.entry(command.to_owned()).or_insert_with(ask).clone()
    }
}

fn is_option(word: &str) -> bool {
    word.len() > 1
        && word.starts_with('-')
        && word[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '-')
}

#[test]
fn commands_of_the_guides_have_the_options_that_the_guides_give_them() {
    let mut pages = files_below(&root().join("docs/guide"), "md");
    pages.extend([root().join("README.md"), root().join("docs/lab.md")]);
    let mut helps = Helps::default();
    let (mut seen, mut wrong) = (0, BTreeSet::new());
    for page in pages {
        for line in commands(&fs::read_to_string(&page).unwrap()) {
            for words in uses(&line) {
                let pool = if words.first() == Some(&"-P") { 2 } else { 0 };
                let Some(name) = words.iter().skip(pool).find(|word| !word.starts_with('-')) else {
                    continue;
                };
                if *name == "lab" {
                    // A package of its own.
                    continue;
                }
                let Some(help) = helps.of(name) else {
                    wrong.insert(format!("{}: {line}: there is no command {name}", page.display()));
                    continue;
                };
                seen += 1;
                for option in words.iter().filter(|word| is_option(word)) {
                    let option = option.split('=').next().unwrap();
                    if !help.split([' ', ',', '\n', '[', '=']).any(|word| word == option) {
                        wrong.insert(format!("{}: {line}: no {option}", page.display()));
                    }
                }
            }
        }
    }
    assert!(seen > 80, "{seen} commands found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The code spans of the first column of the table below a heading.
fn first_column(page: &str, heading: &str) -> Vec<String> {
    let (_, below) = page.split_once(heading).unwrap();
    let rows = below.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let cells = rows.take_while(|line| line.starts_with('|')).map(|line| line.split('|').nth(1).unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The string literals of the sources, each as the compiler sees it, one after another.
fn sources() -> String {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut text = String::new();
    for file in crates.flat_map(|folder| files_below(&folder, "rs")) {
        text.extend(fs::read_to_string(file).unwrap().split("\\\n").map(str::trim_start));
    }
    text
}

#[test]
fn what_the_guide_for_a_failing_disk_quotes_is_in_the_program() {
    let page = fs::read_to_string(root().join("docs/guide/failing-disk.md")).unwrap();
    let quoted = first_column(&page, "## It does not open");
    assert!(quoted.len() > 15, "{quoted:?}");
    let sources = sources();
    let mut missing = Vec::new();
    for quote in &quoted {
        // A message names files, and is put together from what happened to what.
        let quote = ["superblock.0", "superblock.…", "Input/output error (os error 5)"]
            .iter()
            .fold(quote.clone(), |text, name| text.replace(name, "…"));
        let parts = quote.split(['…', ':', ';', '(', ')']).map(str::trim);
        let parts = parts.map(|part| part.strip_prefix("damage in ").unwrap_or(part));
        missing.extend(parts.filter(|part| part.len() > 4 && !sources.contains(part)).map(str::to_owned));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
