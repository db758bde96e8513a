//! `icecore umount`

use crate::locate::split_at_pool;
use anyhow::Context as _;
use clap::Args;
use icecore::admin::{Client, Request, Response};
use icecore_fuse::mounting::{self, FILESYSTEM_TYPE, Listed};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the process of a mount may take to close its pool.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Args, Debug)]
#[command(after_help = "\
Returns when everything is durable and the pool is closed, so that another
process can open it. umount(8) does not wait for that.

Example:
  icecore umount /mnt/db")]
pub struct Arguments {
    /// The folder that something is mounted on
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let shown = arguments.folder.display();
    let point = mounting::real_point(&arguments.folder)?;
    let mount = mounting::mounted_at(&point)?;
    let Some(mount) = mount.filter(|mount| mount.kind == FILESYSTEM_TYPE) else {
        anyhow::bail!("nothing of icecore is mounted on {shown}");
    };
    if mounting::is_stale(&point) {
        return Ok(mounting::detach(&point)?);
    }
    let owner = owner(&mount);
    mounting::unmount(&point)?;
    if let Some((process, descriptor)) = owner {
        wait_for_end(process, &descriptor)?;
    }
    Ok(())
}

/// The process that has the pool of a mount open, held so that its number cannot come to mean another one. A
/// pool that is only read has none that matters.
fn owner(mount: &Listed) -> Option<(u32, OwnedFd)> {
    let (pool, _) = split_at_pool(&mount.source).ok()?;
    let process = process_of(&pool)?;
    let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
    Some((process, pidfd_open(pid, PidfdFlags::empty()).ok()?))
}

fn process_of(pool: &Path) -> Option<u32> {
    let mut client = Client::connect(pool).ok()?;
    match client.call(&Request::Status, &mut |_| ()).ok()? {
        icecore::admin::client::Outcome::Done(Response::Status(status)) => Some(status.process),
        _ => None,
    }
}

fn wait_for_end(process: u32, descriptor: &OwnedFd) -> anyhow::Result<()> {
    let timeout = rustix::time::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let ended = rustix::io::retry_on_intr(|| poll(&mut polled, Some(&timeout)));
    let ended = ended.with_context(|| format!("cannot wait for process {process}"))?;
    anyhow::ensure!(
        ended > 0,
        "it is unmounted, but process {process} has not closed the pool within {} s: wait for it to end. A container, \
         or another process with mounts of its own, may still have this one",
        PATIENCE.as_secs()
    );
    Ok(())
}
