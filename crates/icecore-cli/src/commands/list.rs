//! `icecore list`

use super::{finish, list_entries, snapshots_target, take};
use crate::exit;
use crate::output::{Output, Table};
use crate::pool::{Context, open_to_read};
use crate::properties::{self, Property, Value, natural_key};
use clap::Args;
use icecore::admin::{Access, Failure, Request, Response};
use icecore::names::parse_target;
use icecore::units::ByteLength;
use icecore::{DestroyTarget, ListEntry, ListFilter};
use serde_json::{Map, json};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// Columns of a bare `list`.
const DEFAULT_COLUMNS: &str = "name,used,available,referenced";
/// Columns of a selection that might be destroyed.
const RECLAIM_COLUMNS: &str = "name,used,referenced,written";

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore list
  icecore list -t snapshot -o name,used,creation -s used db
  icecore list -t all --json
  icecore list --reclaim db@monday%friday db@before-upgrade")]
#[command(after_long_help = format!("\
Example:
  icecore list
  icecore list -t snapshot -o name,used,creation -s used db
  icecore list -t all --json
  icecore list --reclaim db@monday%friday db@before-upgrade

{}", properties::help()))]
pub struct Arguments {
    /// Datasets or snapshots to list; everything if there is none
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,

    /// What to list: dataset, snapshot or all, or several with commas between
    #[arg(short = 't', long = "type", value_name = "TYPE,...")]
    types: Option<String>,

    /// Everything below the names as well
    #[arg(short, long)]
    recursive: bool,

    /// So many levels of datasets below the names
    #[arg(short, long, value_name = "LEVELS")]
    depth: Option<usize>,

    /// For scripts: no headers, tabs between columns
    #[arg(short = 'H', long)]
    no_header: bool,

    /// Exact values: bytes, and seconds since 1970
    #[arg(short, long)]
    parsable: bool,

    /// Properties to show, with commas between
    #[arg(short = 'o', long, value_name = "PROPERTY,...")]
    columns: Option<String>,

    /// Sort by a property; several count in their order
    #[arg(short = 's', long = "sort", value_name = "PROPERTY")]
    sort: Vec<String>,

    /// Sort by a property, largest first; after those of -s
    #[arg(short = 'S', long = "sort-descending", value_name = "PROPERTY")]
    sort_descending: Vec<String>,

    /// Snapshots and ranges (db@monday%friday) only, and what destroying them together gives back
    #[arg(long)]
    reclaim: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// What `-t` selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Types {
    datasets: bool,
    snapshots: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let columns = columns(arguments)?;
    let keys = sort_keys(arguments)?;
    let (pool, asked) = asked(context, arguments)?;
    let mut access = open_to_read(&pool)?;
    let wanted = columns.iter().chain(keys.iter().map(|(key, _)| key));
    let found = answer(&mut access, asked, arguments.recursive, wanted);
    let (mut entries, user, reclaim) = finish(access, found)?;
    entries.sort_by_cached_key(natural_key);
    let value = |entry: &ListEntry, property: &Property<'_>| {
        property.value(entry, |key| user.get(&entry.name).and_then(|all| all.get(key)).cloned())
    };
    sort(&mut entries, &keys, value);
    let mut output = Output::new();
    if arguments.json {
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| {
                let fields = columns.iter().map(|one| (one.name().to_owned(), value(entry, one).json()));
                fields.collect::<Map<_, _>>()
            })
            .collect();
        let mut body = json!({ "entries": entries });
        if let Some(reclaim) = reclaim {
            body["reclaim_bytes"] = json!(reclaim.get());
        }
        output.document("list", &pool, body)?;
        return output.finish();
    }
    let mut table = Table::new(columns.iter().map(Property::column));
    for entry in &entries {
        table.row(columns.iter().map(|one| value(entry, one).text(arguments.parsable)).collect());
    }
    if let Some(reclaim) = reclaim {
        table.row(columns.iter().map(|one| together(one, reclaim, arguments.parsable)).collect());
    }
    table.print(&mut output, arguments.no_header)?;
    output.finish()
}

/// A cell of the line below a selection: its sum goes where each one's share is.
fn together(column: &Property<'_>, reclaim: ByteLength, exact: bool) -> String {
    match column.name() {
        "name" => "(together)".to_owned(),
        "used" => Value::Size(reclaim).text(exact),
        _ => "-".to_owned(),
    }
}

/// JSON documents have all the store's properties unless others are asked for.
fn columns(arguments: &Arguments) -> anyhow::Result<Vec<Property<'_>>> {
    match &arguments.columns {
        Some(names) => {
            let columns = Property::parse_list(names)?;
            if columns.is_empty() { Err(exit::usage("-o names no property")) } else { Ok(columns) }
        }
        None if arguments.json => Ok(properties::NATIVE.iter().map(Property::Native).collect()),
        None if arguments.reclaim => Property::parse_list(RECLAIM_COLUMNS),
        None => Property::parse_list(DEFAULT_COLUMNS),
    }
}

fn sort_keys(arguments: &Arguments) -> anyhow::Result<Vec<(Property<'_>, bool)>> {
    let up = arguments.sort.iter().map(|name| (name, false));
    let down = arguments.sort_descending.iter().map(|name| (name, true));
    up.chain(down).map(|(name, descending)| Ok((Property::parse(name)?, descending))).collect()
}

fn sort(
    entries: &mut Vec<ListEntry>,
    keys: &[(Property<'_>, bool)],
    value: impl Fn(&ListEntry, &Property<'_>) -> Value,
) {
    if keys.is_empty() {
        return;
    }
    let mut keyed: Vec<(Vec<Value>, ListEntry)> = entries
        .drain(..)
        .map(|entry| (keys.iter().map(|(key, _)| value(&entry, key)).collect(), entry))
        .collect();
    keyed.sort_by(|(one, _), (other, _)| {
        let orders = keys
            .iter()
            .zip(one.iter().zip(other))
            .map(|((_, descending), (one, other))| if *descending { other.cmp(one) } else { one.cmp(other) });
        orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    entries.extend(keyed.into_iter().map(|(_, entry)| entry));
}

fn parse_types(text: &str) -> anyhow::Result<Types> {
    let mut types = Types::default();
    for name in text.split(',').map(str::trim) {
        match name {
            "dataset" | "datasets" | "filesystem" | "fs" => types.datasets = true,
            "snapshot" | "snapshots" | "snap" => types.snapshots = true,
            "all" => types = Types { datasets: true, snapshots: true },
            _ => return Err(exit::usage(format!("{name:?} is not a type: use dataset, snapshot or all"))),
        }
    }
    Ok(types)
}

/// What is to be listed.
enum Asked {
    Filters(Vec<ListFilter>),
    /// Snapshots and ranges, and the sum of what they would give back.
    Reclaim(Vec<DestroyTarget>),
}

fn asked(context: &Context, arguments: &Arguments) -> anyhow::Result<(PathBuf, Asked)> {
    if !arguments.reclaim {
        return filters(context, arguments).map(|(pool, filters)| (pool, Asked::Filters(filters)));
    }
    let (pool, names) = context.names(&arguments.names)?;
    if let Some(dataset) = names.iter().find(|name| !name.contains('@')) {
        return Err(exit::usage(format!("--reclaim is about snapshots, and {dataset} is a dataset")));
    }
    let targets: Result<_, _> = names.iter().map(|name| parse_target(name, false)).collect();
    Ok((pool, Asked::Reclaim(targets.map_err(Failure::from)?)))
}

fn answer<'a>(
    access: &mut Access,
    asked: Asked,
    recursive: bool,
    wanted: impl Iterator<Item = &'a Property<'a>>,
) -> anyhow::Result<(Vec<ListEntry>, UserProperties, Option<ByteLength>)> {
    let targets = match asked {
        Asked::Filters(filters) => {
            let (entries, user) = find(access, filters, wanted)?;
            return Ok((entries, user, None));
        }
        Asked::Reclaim(targets) => targets,
    };
    let names = super::destroy::selected(access, &targets, recursive)?;
    let target = snapshots_target(names.iter().map(String::as_str));
    let planned = access.call(Request::PlanDestroy { target, unheld: true })?;
    let reclaim = take!(planned, Response::Destroyed(plan) => plan.frees);
    let one = |name| ListFilter { root: Some(name), depth: Some(0), datasets: false, snapshots: true };
    let (entries, user) = find(access, names.into_iter().map(one).collect(), wanted)?;
    Ok((entries, user, Some(reclaim)))
}

/// One filter for each name. A name alone means itself: with snapshots asked for, those it has; a snapshot's
/// name is shown whatever is asked for.
fn filters(context: &Context, arguments: &Arguments) -> anyhow::Result<(PathBuf, Vec<ListFilter>)> {
    let types = match &arguments.types {
        Some(text) => parse_types(text)?,
        None => Types { datasets: true, snapshots: false },
    };
    let whole =
        |depth| ListFilter { root: None, depth, datasets: types.datasets, snapshots: types.snapshots };
    let depth = arguments.depth;
    if arguments.names.is_empty() {
        return Ok((context.pool()?, vec![whole(depth)]));
    }
    let mut pool: Option<PathBuf> = None;
    let mut filters = Vec::new();
    for argument in &arguments.names {
        let location = context.locate(argument)?;
        if *pool.get_or_insert_with(|| location.pool.clone()) != location.pool {
            return Err(exit::usage("one command works on one pool, and these are several"));
        }
        if location.rest.is_empty() {
            filters.push(whole(depth));
            continue;
        }
        let name = location.name()?;
        let snapshot = name.contains('@');
        filters.push(ListFilter {
            root: Some(name),
            depth: depth.or((!arguments.recursive).then_some(0)),
            datasets: types.datasets && !snapshot,
            snapshots: types.snapshots || snapshot,
        });
    }
    Ok((pool.unwrap_or_default(), filters))
}

type UserProperties = HashMap<String, HashMap<String, String>>;

/// Entries, each once, and their user properties where one of `wanted` is such.
fn find<'a>(
    access: &mut Access,
    filters: Vec<ListFilter>,
    wanted: impl Iterator<Item = &'a Property<'a>>,
) -> anyhow::Result<(Vec<ListEntry>, UserProperties)> {
    let mut entries = Vec::new();
    for filter in filters {
        entries.extend(list_entries(access, filter)?);
    }
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert(entry.name.clone()));
    let mut user = UserProperties::new();
    if wanted.into_iter().any(|property| matches!(property, Property::User(_))) {
        for entry in &entries {
            let response = access.call(Request::Properties { name: entry.name.clone() })?;
            let properties = take!(response, Response::Properties(properties) => properties);
            let pairs = properties.into_iter().map(|property| (property.name, property.value)).collect();
            user.insert(entry.name.clone(), pairs);
        }
    }
    Ok((entries, user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_words_with_commas() {
        assert_eq!(parse_types("all").unwrap(), Types { datasets: true, snapshots: true });
        assert_eq!(parse_types("snap").unwrap(), Types { datasets: false, snapshots: true });
        assert_eq!(parse_types("dataset, snapshot").unwrap(), Types { datasets: true, snapshots: true });
        assert!(parse_types("").is_err());
        assert!(parse_types("volume").is_err());
    }
}
