//! Standard output: tables and JSON documents.

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

/// Why what this command shows may be older than what the owner of the pool knows.
static STALE: OnceLock<String> = OnceLock::new();

/// What is shown from here on may be stale: every document says so.
pub fn mark_stale(why: &str) {
    STALE.get_or_init(|| why.to_owned());
}

/// Why what is shown may be stale, if it may.
pub fn stale() -> Option<&'static str> {
    STALE.get().map(String::as_str)
}

/// The version of every JSON document. It grows when a field is removed or changes its meaning.
pub const DOCUMENT_VERSION: u32 = 1;

/// Buffered standard output. [`Output::finish`] must be called: it is where a full disk shows.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    is_blank: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Takes standard output for as long as it lives.
    #[must_use]
    pub fn new() -> Self {
        let writer = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        Self { writer, is_blank: true }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Standard output cannot be written, here and below.
    pub fn line(&mut self, text: impl AsRef<str>) -> anyhow::Result<()> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.is_blank = false;
        self.writer.write_all(bytes).context("cannot write to standard output")
    }

    /// Whether nothing was written yet.
    pub const fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// A JSON document: version, command and pool (unless its path is empty), then the fields of `body`,
    /// which must be an object.
    pub fn document(&mut self, command: &str, pool: &Path, body: Value) -> anyhow::Result<()> {
        let mut document = Map::new();
        document.insert("version".into(), json!(DOCUMENT_VERSION));
        document.insert("command".into(), json!(command));
        if !pool.as_os_str().is_empty() {
            insert_name(&mut document, "pool", pool.as_os_str().as_bytes());
        }
        if let Some(why) = stale() {
            document.insert("stale".into(), json!(why));
        }
        if let Value::Object(fields) = body {
            document.extend(fields);
        }
        let text = serde_json::to_string_pretty(&document)?;
        self.line(text)
    }

    /// Shows what was written so far.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.writer.flush().context("cannot write to standard output")
    }

    /// Shows the rest.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.flush()
    }
}

/// Prints one line, in the way of a command that has nothing else to say.
pub fn say(text: impl AsRef<str>) -> anyhow::Result<()> {
    let mut output = Output::new();
    output.line(text)?;
    output.finish()
}

/// Prints one JSON document.
pub fn print_document(command: &str, pool: &Path, body: Value) -> anyhow::Result<()> {
    let mut output = Output::new();
    output.document(command, pool, body)?;
    output.finish()
}

/// A file name for a JSON document: `key` holds it as text, escaped where it is not UTF-8, and then `key_hex`
/// its bytes.
pub fn insert_name(object: &mut Map<String, Value>, key: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(text) => {
            object.insert(key.to_owned(), json!(text));
        }
        Err(_) => {
            object.insert(key.to_owned(), json!(crate::format::escaped(name)));
            let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            object.insert(format!("{key}_hex"), json!(hex));
        }
    }
}

/// The side that a column leans to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Rows of text under headers.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headers.
    pub fn new(columns: impl IntoIterator<Item = (String, Align)>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row of as many cells as there are columns.
    pub fn row(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// For people: headers, and columns two spaces apart. `for_scripts`: no headers, one tab between columns.
    pub fn print(&self, output: &mut Output, for_scripts: bool) -> anyhow::Result<()> {
        if for_scripts {
            return self.rows.iter().try_for_each(|row| output.line(row.join("\t")));
        }
        let headers: Vec<String> = self.columns.iter().map(|(header, _)| header.clone()).collect();
        output.line(self.aligned(&headers, &self.widths()))?;
        self.print_bare(output)
    }

    /// For people, in columns without headers.
    pub fn print_bare(&self, output: &mut Output) -> anyhow::Result<()> {
        let widths = self.widths();
        self.rows.iter().try_for_each(|row| output.line(self.aligned(row, &widths)))
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.columns.len())
            .map(|index| {
                let header = self.columns[index].0.chars().count();
                self.rows.iter().map(|row| row[index].chars().count()).chain([header]).max().unwrap_or(0)
            })
            .collect()
    }

    fn aligned(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (index, cell) in row.iter().enumerate() {
            if index > 0 {
                line.push_str("  ");
            }
            let padding = " ".repeat(widths[index] - cell.chars().count());
            match self.columns[index].1 {
                Align::Left => line.extend([cell, padding.as_str()]),
                Align::Right => line.extend([padding.as_str(), cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_lean_to_their_side() {
        let mut table = Table::new([("NAME".to_owned(), Align::Left), ("USED".to_owned(), Align::Right)]);
        table.row(vec!["größe".into(), "1K".into()]);
        let widths = [5, 4];
        assert_eq!(table.aligned(&["NAME".into(), "USED".into()], &widths), "NAME   USED");
        assert_eq!(table.aligned(&table.rows[0], &widths), "größe    1K");
    }

    #[test]
    fn names_that_are_no_text_carry_their_bytes() {
        let mut object = Map::new();
        insert_name(&mut object, "name", b"a\xff");
        insert_name(&mut object, "path", "ä".as_bytes());
        assert_eq!(Value::Object(object), json!({"name": "a\\377", "name_hex": "61ff", "path": "ä"}));
    }
}
