//! `icecore get`, `icecore set` and `icecore inherit`

use super::{finish, key_and_value, list_entries, take};
use crate::exit;
use crate::output::{Align, Output, Table};
use crate::pool::{Context, open_to_read, open_to_write};
use crate::properties::{self, NATIVE, Property, natural_key};
use clap::Args;
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use icecore::limits::Limit;
use icecore::{ListEntry, ListFilter, Property as UserProperty, PropertySource};
use serde_json::{Map, Value, json};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore get all db@monday
  icecore get -H -p -o value used db@monday")]
#[command(after_long_help = format!("\
Example:
  icecore get all db@monday
  icecore get -H -p -o value used db@monday

{}", properties::help()))]
pub struct GetArguments {
    /// Properties with commas between, or `all`
    #[arg(value_name = "PROPERTY,...")]
    properties: String,

    /// Datasets or snapshots; everything if there is none
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,

    /// All datasets and snapshots below the names as well
    #[arg(short, long)]
    recursive: bool,

    /// For scripts: no headers, tabs between columns
    #[arg(short = 'H', long)]
    no_header: bool,

    /// Exact values: bytes, and seconds since 1970
    #[arg(short, long)]
    parsable: bool,

    /// Columns to show, of name, property, value and source
    #[arg(short = 'o', long, value_name = "COLUMN,...", default_value = "name,property,value,source")]
    columns: String,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
User properties have a colon in their name, and are inherited by the datasets
below. Of the store's own, quota, refquota, reservation and refreservation of
a dataset can be set, to a size or to none.

Example:
  icecore set team:owner=ada team:ticket=4711 db
  icecore set quota=50G db")]
pub struct SetArguments {
    /// PROPERTY=VALUE, once or more, then datasets or snapshots
    #[arg(value_name = "PROPERTY=VALUE... NAME", required = true, num_args = 2..)]
    arguments: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  icecore inherit team:owner db")]
pub struct InheritArguments {
    /// The user property to remove
    #[arg(value_name = "PROPERTY")]
    property: String,

    /// Datasets or snapshots
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,

    /// All datasets below the names as well
    #[arg(short, long)]
    recursive: bool,
}

/// A line of `get`.
struct Row {
    name: String,
    property: String,
    value: properties::Value,
    source: String,
}

pub fn get(context: &Context, arguments: &GetArguments) -> anyhow::Result<()> {
    let columns = get_columns(&arguments.columns)?;
    let wanted = match arguments.properties.as_str() {
        "all" => None,
        names => Some(Property::parse_list(names)?),
    };
    let (pool, names) = match arguments.names.as_slice() {
        [] => (context.pool()?, Vec::new()),
        names => context.names(names)?,
    };
    let mut access = open_to_read(&pool)?;
    let rows = find_rows(&mut access, &names, arguments.recursive, wanted.as_deref());
    let rows = finish(access, rows)?;
    let mut output = Output::new();
    if arguments.json {
        output.document("get", &pool, json!({ "entries": document(&rows) }))?;
        return output.finish();
    }
    let mut table = Table::new(columns.iter().map(|column| (column.to_uppercase(), Align::Left)));
    for row in rows {
        let cell = |column: &&str| match *column {
            "name" => row.name.clone(),
            "property" => row.property.clone(),
            "value" => row.value.text(arguments.parsable),
            _ => row.source.clone(),
        };
        table.row(columns.iter().map(cell).collect());
    }
    table.print(&mut output, arguments.no_header)?;
    output.finish()
}

fn get_columns(text: &str) -> anyhow::Result<Vec<&str>> {
    let known = ["name", "property", "value", "source"];
    let columns: Vec<&str> = match text {
        "all" => known.to_vec(),
        _ => text.split(',').map(str::trim).collect(),
    };
    match columns.iter().find(|column| !known.contains(column)) {
        Some(unknown) => {
            Err(exit::usage(format!("{unknown:?} is not a column: use name, property, value or source")))
        }
        None => Ok(columns),
    }
}

fn find_rows(
    access: &mut Access,
    names: &[String],
    recursive: bool,
    wanted: Option<&[Property<'_>]>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for entry in find_entries(access, names, recursive)? {
        let needs_user = wanted.is_none_or(|all| all.iter().any(|one| matches!(one, Property::User(_))));
        let user = if needs_user { user_properties(access, &entry.name)? } else { Vec::new() };
        match wanted {
            Some(wanted) => rows.extend(wanted.iter().map(|property| row(&entry, *property, &user))),
            None => {
                // The name is on every line already.
                let native = NATIVE.iter().skip(1).map(Property::Native);
                let own = user.iter().map(|property| Property::User(&property.name));
                rows.extend(native.chain(own).map(|property| row(&entry, property, &user)));
            }
        }
    }
    Ok(rows)
}

fn find_entries(access: &mut Access, names: &[String], recursive: bool) -> anyhow::Result<Vec<ListEntry>> {
    let everything = ListFilter { root: None, depth: None, datasets: true, snapshots: true };
    let mut entries = Vec::new();
    if names.is_empty() {
        entries = list_entries(access, everything.clone())?;
    }
    for name in names {
        let snapshot = name.contains('@');
        let root = Some(name.clone());
        let filter = if recursive && !snapshot {
            ListFilter { root, ..everything.clone() }
        } else {
            ListFilter { root, depth: Some(0), datasets: !snapshot, snapshots: snapshot }
        };
        entries.extend(list_entries(access, filter)?);
    }
    entries.sort_by_cached_key(natural_key);
    entries.dedup_by(|one, other| one.name == other.name);
    Ok(entries)
}

fn user_properties(access: &mut Access, name: &str) -> anyhow::Result<Vec<UserProperty>> {
    let response = access.call(Request::Properties { name: name.to_owned() })?;
    let mut properties = take!(response, Response::Properties(properties) => properties);
    properties.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(properties)
}

fn row(entry: &ListEntry, property: Property<'_>, user: &[UserProperty]) -> Row {
    let found = user.iter().find(|one| one.name == property.name());
    Row {
        name: entry.name.clone(),
        property: property.name().to_owned(),
        value: property.value(entry, |_| found.map(|one| one.value.clone())),
        source: found.map_or_else(|| "-".to_owned(), |one| source_text(&one.source)),
    }
}

fn source_text(source: &PropertySource) -> String {
    match source {
        PropertySource::Local => "local".to_owned(),
        PropertySource::Inherited(dataset) => format!("inherited from {dataset}"),
    }
}

/// Rows of one entry follow each other.
fn document(rows: &[Row]) -> Vec<Value> {
    rows.chunk_by(|one, other| one.name == other.name)
        .map(|rows| {
            let properties: Map<String, Value> = rows
                .iter()
                .map(|row| {
                    let source = if row.source == "-" { Value::Null } else { json!(row.source) };
                    (row.property.clone(), json!({ "value": row.value.json(), "source": source }))
                })
                .collect();
            json!({ "name": rows[0].name, "properties": properties })
        })
        .collect()
}

pub fn set(context: &Context, arguments: &SetArguments) -> anyhow::Result<()> {
    // Names have no '=' in them, so what has one is a property; only a path to a pool may.
    let is_pair = |argument: &&OsString| {
        argument.to_str().is_some_and(|text| text.contains('=') && !text.starts_with(['/', '.']))
    };
    let (pairs, names): (Vec<_>, Vec<_>) = arguments.arguments.iter().partition(is_pair);
    if pairs.is_empty() || names.is_empty() {
        return Err(exit::usage("set takes PROPERTY=VALUE and then a name, as in team:owner=ada db"));
    }
    let pairs: Vec<(String, String)> =
        pairs.iter().filter_map(|pair| pair.to_str()).map(key_and_value).collect::<Result<_, _>>()?;
    let pairs = super::with_limits(pairs)?;
    for (key, value) in &pairs {
        if Limit::from_name(key).is_none() {
            check(key)?;
            icecore::names::check_property_value(key, value).map_err(Failure::from)?;
        }
    }
    let (pool, names) = context.names(&names)?;
    let mut access = open_to_write(&pool)?;
    let requests = names.iter().flat_map(|name| {
        pairs.iter().map(|(key, value)| Request::SetProperty {
            name: name.clone(),
            key: key.clone(),
            value: value.clone(),
        })
    });
    let done = do_all(&mut access, requests);
    finish(access, done)
}

pub fn inherit(context: &Context, arguments: &InheritArguments) -> anyhow::Result<()> {
    if Limit::from_name(&arguments.property).is_some() {
        return Err(exit::usage(format!("{0} is not inherited: set {0}=none", arguments.property)));
    }
    check(&arguments.property)?;
    let (pool, mut names) = context.names(&arguments.names)?;
    let mut access = open_to_write(&pool)?;
    let done = below(&mut access, &mut names, arguments.recursive).and_then(|()| {
        let key = arguments.property.clone();
        do_all(&mut access, names.into_iter().map(|name| Request::InheritProperty { name, key: key.clone() }))
    });
    finish(access, done)
}

fn below(access: &mut Access, names: &mut Vec<String>, recursive: bool) -> anyhow::Result<()> {
    if recursive {
        for root in std::mem::take(names) {
            let filter = ListFilter { root: Some(root), depth: None, datasets: true, snapshots: false };
            names.extend(list_entries(access, filter)?.into_iter().map(|entry| entry.name));
        }
    }
    Ok(())
}

fn do_all(access: &mut Access, requests: impl IntoIterator<Item = Request>) -> anyhow::Result<()> {
    for request in requests {
        take!(access.call(request)?, Response::Done => ());
    }
    Ok(())
}

/// The store's own properties follow from its content: a clear word instead of a rule about colons.
fn check(key: &str) -> anyhow::Result<()> {
    if NATIVE.iter().any(|native| native.name == key) {
        let message = format!("{key} is worked out by the store and cannot be set");
        return Err(Failure::new(ErrorCode::Invalid, message).into());
    }
    Ok(icecore::names::check_property_name(key).map_err(Failure::from)?)
}
