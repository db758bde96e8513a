//! The outcome of the demonstration as a table.

use super::{DemoReport, Proof};
use crate::statistics::median;
use std::fmt::Write as _;

type RowOfTable = [String; 3];

/// The table, the join and the verdict.
pub(super) fn table(report: &DemoReport) -> String {
    let mut text = render(&rows(report));
    let joined = &report.joined;
    let _ = write!(
        text,
        "\nThe first version joined with the last, in one query:\n\n  {}\n\n  \
         {} rows in both, {} of them with another value now; their sum changed by {:+.3}\n\n",
        joined.sql, joined.rows, joined.changed, joined.difference
    );
    text.push_str(&verdict(report));
    if let Some(folder) = &report.kept {
        let pool = folder.join("pool");
        let _ = writeln!(text, "Kept: icecore --pool {} list -t snapshot", pool.display());
    }
    text
}

fn rows(report: &DemoReport) -> Vec<RowOfTable> {
    let count = report.snapshot_s.len();
    let snapshots: f64 = report.snapshot_s.iter().sum();
    let each = median(&report.snapshot_s) * 1e3;
    let pool = &report.pool;
    let first =
        format!("{} (of {} in it)", mebibytes(pool.first_own_bytes), mebibytes(pool.first_referenced_bytes));
    let row = |what: &str, plain: String, stored: String| [what.to_owned(), plain, stored];
    let none = || "-".to_owned();
    vec![
        row("", "plain filesystem".to_owned(), "Icecore".to_owned()),
        row("time for the SQL", seconds(report.plain_sql_s), seconds(report.stored_sql_s)),
        row("time for snapshots", none(), format!("{} ({count}, median {each:.2} ms)", seconds(snapshots))),
        row("versions to query", "1".to_owned(), (count + 1).to_string()),
        row("bytes held", mebibytes(report.plain_bytes), mebibytes(pool.used_bytes)),
        row("bytes in files", mebibytes(report.plain_bytes), mebibytes(pool.file_bytes)),
        row("as many copies would take", mebibytes(pool.copies_bytes), none()),
        row("held by the first snapshot alone", none(), first),
    ]
}

fn verdict(report: &DemoReport) -> String {
    let failed: Vec<&Proof> = report.proofs.iter().filter(|proof| !proof.holds()).collect();
    if report.succeeded() {
        return format!(
            "Proved in {}: all {} snapshots pass integrity_check and hold, row for row, what they held when they \
             were taken.\n",
            seconds(report.proof_s),
            report.proofs.len()
        );
    }
    let mut text = format!("FAILED: {} of {} snapshots are not proved", failed.len(), report.proofs.len());
    text.push_str(if report.joined.holds() { ".\n" } else { ", and the join found something else.\n" });
    for proof in failed {
        let Proof { snapshot, integrity, expected, found } = proof;
        let _ = writeln!(
            text,
            "  {snapshot}: integrity_check says {integrity:?}; {} rows (sum {:016x}), expected {} (sum {:016x})",
            found.rows, found.sum, expected.rows, expected.sum
        );
    }
    text
}

fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Columns as wide as their widest cell, a rule under the head.
fn render(rows: &[RowOfTable]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let [name, plain, stored] = row;
        let line = format!("{name:<0$}  {plain:>1$}  {stored:<2$}", widths[0], widths[1], widths[2]);
        let _ = writeln!(text, "{}", line.trim_end());
        if index == 0 {
            let rule = widths.map(|width| "-".repeat(width));
            let _ = writeln!(text, "{}", rule.join("  "));
        }
    }
    text
}
