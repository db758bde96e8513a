//! A folder of files as text that holds only what is not zero, so that a pool image is small in a repository.
//!
//! One line for each thing: `file NAME LENGTH`; `fill OFFSET LENGTH BYTE` for a stretch of one byte; `data
//! OFFSET BYTES` for any other. Numbers are decimal, bytes hexadecimal, and offsets count from the beginning
//! of the file named last. What no line mentions is zero.

use std::fmt::Write as _;
use std::path::Path;

/// Shorter stretches of one byte go with what is around them.
const STRETCH_MIN: usize = 24;

/// The files of a folder but the lock and the socket, by name.
pub fn describe(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    let mut text = String::new();
    for name in names {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        writeln!(text, "file {name} {}", bytes.len()).unwrap();
        describe_bytes(&bytes, &mut text);
    }
    text
}

fn describe_bytes(bytes: &[u8], text: &mut String) {
    let mut from = 0;
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|byte| **byte == bytes[at]).count();
        if length >= STRETCH_MIN {
            write_data(bytes, from..at, text);
            if bytes[at] != 0 {
                writeln!(text, "fill {at} {length} {:02x}", bytes[at]).unwrap();
            }
            from = at + length;
        }
        at += length;
    }
    write_data(bytes, from..at, text);
}

fn write_data(bytes: &[u8], range: std::ops::Range<usize>, text: &mut String) {
    if range.is_empty() {
        return;
    }
    write!(text, "data {} ", range.start).unwrap();
    bytes[range].iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text.push('\n');
}

/// Makes the files that a text describes.
pub fn restore(text: &str, folder: &Path) {
    for (name, bytes) in files(text) {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// The files that a text describes: their names and contents.
pub fn files(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<usize>().unwrap();
        let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
        if words[0] == "file" {
            files.push((words[1].to_owned(), vec![0; number(2)]));
            continue;
        }
        let (_, bytes) = files.last_mut().unwrap();
        match words[0] {
            "fill" => bytes[number(1)..number(1) + number(2)].fill(byte(words[3])),
            "data" => {
                for (index, pair) in words[2].as_bytes().chunks(2).enumerate() {
                    bytes[number(1) + index] = byte(std::str::from_utf8(pair).unwrap());
                }
            }
            other => panic!("a line that begins with {other:?}"),
        }
    }
    files
}
