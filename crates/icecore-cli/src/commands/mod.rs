//! One module per command: its arguments, and what it does.

pub mod cat;
pub mod check;
pub mod clone;
pub mod copies;
pub mod create;
mod database;
pub mod destroy;
pub mod diff;
pub mod export;
mod files;
pub mod hold;
pub mod import;
pub mod init;
pub mod lab;
pub mod list;
pub mod ls;
pub mod monitor;
pub mod mount;
pub mod promote;
pub mod property;
pub mod prune;
pub mod rename;
pub mod resize;
pub mod rollback;
pub mod scrub;
pub mod snapshot;
pub mod sql;
pub mod status;
pub mod top;
pub mod trim;
pub mod umount;

use crate::cli::{self, Cli, Commands};
use crate::exit;
use crate::pool::Context;
use icecore::admin::{Access, Failure, Request, Response};
use icecore::{DestroyTarget, ListEntry, ListFilter};
use icecore_terminal::generate;

/// Does what the command line says.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let context = Context::new(cli.pool);
    match cli.command {
        Commands::Init(arguments) => init::run(&context, &arguments),
        Commands::Create(arguments) => create::run(&context, arguments),
        Commands::List(arguments) => list::run(&context, &arguments),
        Commands::Snapshot(arguments) => snapshot::run(&context, arguments),
        Commands::Copies(arguments) => copies::run(&context, &arguments),
        Commands::Resize(arguments) => resize::run(&context, &arguments),
        Commands::Trim(arguments) => trim::run(&context, &arguments),
        Commands::Clone(arguments) => clone::run(&context, &arguments),
        Commands::Rollback(arguments) => rollback::run(&context, &arguments),
        Commands::Promote(arguments) => promote::run(&context, &arguments),
        Commands::Rename(arguments) => rename::run(&context, &arguments),
        Commands::Destroy(arguments) => destroy::run(&context, &arguments),
        Commands::Prune(arguments) => prune::run(&context, &arguments),
        Commands::Diff(arguments) => diff::run(&context, &arguments),
        Commands::Hold(arguments) => hold::hold(&context, &arguments),
        Commands::Release(arguments) => hold::release(&context, &arguments),
        Commands::Holds(arguments) => hold::list(&context, &arguments),
        Commands::Get(arguments) => property::get(&context, &arguments),
        Commands::Set(arguments) => property::set(&context, &arguments),
        Commands::Inherit(arguments) => property::inherit(&context, &arguments),
        Commands::Import(arguments) => import::run(&context, &arguments),
        Commands::Export(arguments) => export::run(&context, &arguments),
        Commands::Cat(arguments) => cat::run(&context, &arguments),
        Commands::Ls(arguments) => ls::run(&context, &arguments),
        Commands::Scrub(arguments) => scrub::run(&context, &arguments),
        Commands::Check(arguments) => check::run(&context, &arguments),
        Commands::Monitor(arguments) => monitor::run(&context, &arguments),
        Commands::Status(arguments) => status::run(&context, &arguments),
        Commands::Top(arguments) => top::run(&context, &arguments),
        Commands::Mount(arguments) => mount::run(&context, arguments),
        Commands::Umount(arguments) => umount::run(&arguments),
        Commands::Sql(arguments) => sql::run(&context, &arguments),
        Commands::Demo(arguments) => lab::demo(&arguments),
        Commands::Lab(arguments) => lab::run(&arguments),
        Commands::Completions(arguments) => generate::completions(&arguments, cli::command()),
        Commands::Man(arguments) => generate::man(&arguments, cli::command()),
    }
}

/// A response of another kind than the request's: the two ends do not understand each other.
fn unexpected() -> anyhow::Error {
    anyhow::anyhow!("the owner of the pool answers something else than was asked")
}

/// Takes the expected kind of response apart.
macro_rules! take {
    ($response:expr, $pattern:pat => $value:expr) => {
        match $response {
            $pattern => $value,
            _ => return Err($crate::commands::unexpected()),
        }
    };
}
pub(crate) use take;

/// Does a request, and closes the pool if it was opened here.
fn request_once(mut access: Access, request: Request) -> anyhow::Result<Response> {
    let response = access.call(request);
    finish(access, response)
}

/// Closes the pool. The first error is returned: that of the work goes before that of the close.
fn finish<T, E: Into<anyhow::Error>>(access: Access, result: Result<T, E>) -> anyhow::Result<T> {
    let closed = access.close();
    let value = result.map_err(Into::into)?;
    closed.map_err(|failure| {
        let message = format!("done, but the pool could not be closed cleanly: {failure}");
        Failure::new(failure.code, message)
    })?;
    Ok(value)
}

/// Splits `key=value`.
fn key_and_value(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(exit::usage(format!("{text:?} is not PROPERTY=VALUE"))),
    }
}

fn keys_and_values(texts: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    texts.iter().map(|text| key_and_value(text)).collect()
}

/// Properties with the sizes of quotas and reservations in bytes.
fn with_limits(pairs: Vec<(String, String)>) -> anyhow::Result<Vec<(String, String)>> {
    let exact = |(key, value): (String, String)| {
        if icecore::limits::Limit::from_name(&key).is_none() || value == "none" {
            return Ok((key, value));
        }
        let size = crate::format::parse_size(&value).map_err(|why| exit::usage(format!("{key}: {why}")))?;
        Ok((key, size.to_string()))
    };
    pairs.into_iter().map(exact).collect()
}

/// Snapshots, by their full names, to be destroyed in one step.
fn snapshots_target<'a>(names: impl IntoIterator<Item = &'a str>) -> DestroyTarget {
    let mut of: Vec<(String, Vec<String>)> = Vec::new();
    for name in names {
        let (dataset, short) = name.split_once('@').unwrap_or((name, ""));
        match of.last_mut().filter(|(last, _)| last == dataset) {
            Some((_, shorts)) => shorts.push(short.to_owned()),
            None => of.push((dataset.to_owned(), vec![short.to_owned()])),
        }
    }
    DestroyTarget::Snapshots { of }
}

/// Entries that match.
fn list_entries(access: &mut Access, filter: ListFilter) -> anyhow::Result<Vec<ListEntry>> {
    Ok(take!(access.call(Request::List(filter))?, Response::List(entries) => entries))
}

/// `dataset@short` in the dataset, and in all datasets below it that have a snapshot of that name.
fn with_descendants(access: &mut Access, snapshot: &str) -> anyhow::Result<Vec<String>> {
    let name = icecore::names::SnapshotName::parse(snapshot).map_err(Failure::from)?;
    let root = Some(name.dataset_str().to_owned());
    let entries = list_entries(access, ListFilter { root, depth: None, datasets: false, snapshots: true })?;
    let names: Vec<String> = entries
        .into_iter()
        .map(|entry| entry.name)
        .filter(|found| found.split_once('@').is_some_and(|(_, short)| short == name.short()))
        .collect();
    if names.is_empty() {
        let what = format!("no snapshot @{} exists in {} or below it", name.short(), name.dataset_str());
        return Err(Failure::new(icecore::admin::ErrorCode::NotFound, what).into());
    }
    Ok(names)
}
