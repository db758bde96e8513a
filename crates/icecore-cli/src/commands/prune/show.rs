//! What a prune says.

use super::Arguments;
use super::plan::{Plan, Row};
use crate::format;
use crate::output::{Align, Output, Table};
use icecore::Hold;
use serde_json::{Value, json};
use std::path::Path;

pub fn show(plan: &Plan, pool: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let mut output = Output::new();
    if arguments.json {
        output.document("prune", pool, document(plan, arguments.dry_run))?;
    } else if arguments.verbose || arguments.dry_run {
        table(plan, arguments.parsable).print(&mut output, arguments.parsable)?;
        for (snapshot, hold) in &plan.releases {
            let line = if arguments.parsable {
                format!("release\t{snapshot}\t{}", hold.tag)
            } else {
                let release = if arguments.dry_run { "would release" } else { "released" };
                format!("{release} hold {} on {snapshot}: it has expired", hold.tag)
            };
            output.line(line)?;
        }
        output.line(sum(plan, arguments))?;
    }
    output.finish()
}

fn table(plan: &Plan, exact: bool) -> Table {
    let columns = [
        ("ACTION", Align::Left),
        ("NAME", Align::Left),
        ("CREATION", Align::Left),
        ("USED", Align::Right),
        ("WHY", Align::Left),
    ];
    let mut table = Table::new(columns.map(|(header, align)| (header.to_owned(), align)));
    for row in &plan.rows {
        let (created, used) = if exact {
            (format::epoch_seconds(row.entry.created).to_string(), row.entry.used.to_string())
        } else {
            (format::time(row.entry.created), format::size(row.entry.used))
        };
        table.row(vec![action(row).to_owned(), row.entry.name.clone(), created, used, why(row)]);
    }
    table
}

fn action(row: &Row) -> &'static str {
    if row.reasons.is_empty() { "destroy" } else { "keep" }
}

fn why(row: &Row) -> String {
    if row.reasons.is_empty() {
        return "no rule keeps it".to_owned();
    }
    row.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn sum(plan: &Plan, arguments: &Arguments) -> String {
    if arguments.parsable {
        return format!("reclaim\t{}", plan.frees);
    }
    let going = plan.going().count();
    let (destroy, reclaim) =
        if arguments.dry_run { ("would destroy", "would reclaim") } else { ("destroyed", "reclaimed") };
    let kept = plan.rows.len() - going;
    format!("{destroy} {going} snapshots, keeping {kept}; {reclaim} {}", format::size(plan.frees))
}

fn document(plan: &Plan, dry_run: bool) -> Value {
    let row = |row: &Row| {
        json!({
            "name": row.entry.name,
            "action": action(row),
            "reasons": row.reasons.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "creation": format::exact_time(row.entry.created),
            "used": row.entry.used.get(),
        })
    };
    let release = |(snapshot, hold): &(String, Hold)| json!({ "name": snapshot, "tag": hold.tag, "expires": hold.expires.map(format::exact_time) });
    let problem = |(dataset, problem): &(String, String)| json!({ "name": dataset, "problem": problem });
    json!({
        "dry_run": dry_run,
        "snapshots": plan.rows.iter().map(row).collect::<Vec<_>>(),
        "released": plan.releases.iter().map(release).collect::<Vec<_>>(),
        "problems": plan.problems.iter().map(problem).collect::<Vec<_>>(),
        "freed_bytes": plan.frees.get(),
        "space": plan.space.map(|space| json!({
            "used_bytes": space.used,
            "capacity_bytes": space.capacity,
            "needed_bytes": space.needed,
        })),
    })
}
