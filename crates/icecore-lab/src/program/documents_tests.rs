//! The commands of the lab in the documents are commands that it takes.

use super::command;
use std::fs;
use std::path::Path;

/// The words behind `icecore lab` in each command of a page, from its blocks and its lines of text.
fn uses(page: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (place, part) in page.split("\n```").enumerate() {
        let commands: Vec<String> = if place % 2 == 1 {
            part.replace("\\\n", " ").lines().map(str::to_owned).collect()
        } else {
            part.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        for command in commands {
            let ends = |word: &&str| matches!(*word, "#" | ">" | "|" | "&&");
            let words: Vec<&str> = command.split_whitespace().take_while(|word| !ends(word)).collect();
            if let Some(at) = words.windows(2).position(|pair| pair == ["icecore", "lab"]) {
                found.push(words[at + 2..].iter().map(|word| (*word).to_owned()).collect());
            }
        }
    }
    found
}

/// A name in capitals stands for what a reader puts there.
fn stands_for_something(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|character| character.is_ascii_uppercase())
}

#[test]
fn commands_of_the_documents_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for page in ["README.md", "docs/lab.md", "docs/benchmarks.md"] {
        let text = fs::read_to_string(root.join(page)).expect("read");
        for words in uses(&text) {
            // A command alone is a name of it.
            if words.len() < 2 || words.iter().any(|word| stands_for_something(word)) {
                continue;
            }
            seen += 1;
            let outcome =
                command().try_get_matches_from(["lab"].into_iter().chain(words.iter().map(String::as_str)));
            assert!(outcome.is_ok(), "{page}: icecore lab {}: {}", words.join(" "), outcome.unwrap_err());
        }
    }
    assert!(seen > 20, "{seen} commands found");
}
