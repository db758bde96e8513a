//! `icecore list`

use super::{finish, list_entries, take};
use crate::exit;
use crate::output::{Output, Table};
use crate::pool::{Context, open_to_read};
use crate::properties::{self, Property, Value, natural_key};
use clap::Args;
use icecore::admin::{Access, Request, Response};
use icecore::{ListEntry, ListFilter};
use serde_json::{Map, json};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// Columns of a bare `list`.
const DEFAULT_COLUMNS: &str = "name,used,available,referenced";

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore list
  icecore list -t snapshot -o name,used,creation -s used db
  icecore list -t all --json")]
#[command(after_long_help = format!("\
Example:
  icecore list
  icecore list -t snapshot -o name,used,creation -s used db
  icecore list -t all --json

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
    let (pool, filters) = filters(context, arguments)?;
    let mut access = open_to_read(&pool)?;
    let found = find(&mut access, filters, columns.iter().chain(keys.iter().map(|(key, _)| key)));
    let (mut entries, user) = finish(access, found)?;
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
        output.document("list", &pool, json!({ "entries": entries }))?;
        return output.finish();
    }
    let mut table = Table::new(columns.iter().map(Property::column));
    for entry in &entries {
        table.row(columns.iter().map(|one| value(entry, one).text(arguments.parsable)).collect());
    }
    table.print(&mut output, arguments.no_header)?;
    output.finish()
}

/// JSON documents have all the store's properties unless others are asked for.
fn columns(arguments: &Arguments) -> anyhow::Result<Vec<Property<'_>>> {
    match &arguments.columns {
        Some(names) => {
            let columns = Property::parse_list(names)?;
            if columns.is_empty() { Err(exit::usage("-o names no property")) } else { Ok(columns) }
        }
        None if arguments.json => Ok(properties::NATIVE.iter().map(Property::Native).collect()),
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
