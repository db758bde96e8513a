//! Those who look on: lists, figures, properties, clients of the control socket, scrubs.

use super::process::Turn;
use super::sample::Deeds;
use crate::error::{Doing, Error, Result};
use icecore::admin::{Client, Request};
use icecore::{ListFilter, Pool, ScrubOptions};
use std::path::Path;
use std::time::Duration;

const PACE: Duration = Duration::from_millis(500);
/// Cycles from one scrub to the next.
const SCRUB_EVERY: u64 = 3;
const SCRUB_BYTES_PER_SECOND: u64 = 64 << 20;
const PROPERTY: &str = "soak:cycle";

pub(super) fn work(turn: &mut Turn<'_>) -> Result<Deeds> {
    let mut deeds = Deeds::default();
    if turn.cycle.is_multiple_of(SCRUB_EVERY) {
        deeds.scrubs += u64::from(scrub(turn)?);
    }
    let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    while turn.goes_on(PACE) {
        turn.pool.list(&filter)?;
        turn.pool.set_property("soak", PROPERTY, &turn.cycle.to_string())?;
        turn.pool.properties("soak/db")?;
        turn.pool.inherit_property("soak", PROPERTY)?;
        for request in [Request::Status, Request::Sync] {
            call(turn.pool, turn.folder, &request)?;
            deeds.calls += 1;
        }
    }
    Ok(deeds)
}

/// As another process would ask, by a connection of its own.
fn call(pool: &Pool, folder: &Path, request: &Request) -> Result<()> {
    let refused = |reason: String| Error::Mismatch { what: pool.describe(), detail: reason };
    let mut client = Client::connect(folder).doing(|| format!("connect to {}", folder.display()))?;
    client.call(request, &mut |_| ()).map_err(|failure| refused(failure.message))?;
    Ok(())
}

/// Reads everything, if there is time; answers whether it came to the end.
fn scrub(turn: &Turn<'_>) -> Result<bool> {
    let options = ScrubOptions {
        bytes_per_second: Some(SCRUB_BYTES_PER_SECOND),
        yields: true,
        ..ScrubOptions::default()
    };
    let report = turn.pool.scrub_with(&options, &mut |_| !turn.is_over())?;
    if report.damaged + report.spare > 0 {
        return Err(Error::Mismatch { what: turn.pool.describe(), detail: format!("{:?}", report.findings) });
    }
    Ok(report.complete)
}
