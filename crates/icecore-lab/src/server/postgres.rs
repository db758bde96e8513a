//! PostgreSQL, driven by pgbench(1) with its own workload, which is like TPC-B.

use super::{Drive, Driven, Kind, Server, Setup, Size, number_after, option};
use crate::error::Result;
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Postgres;

/// Debian keeps the programs of each version in a folder of their own. The newest version is taken.
pub(crate) fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    newest.map_or_else(|| name.into(), |version| format!("/usr/lib/postgresql/{version}/bin/{name}").into())
}

impl Kind for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn user(&self) -> &'static str {
        "postgres"
    }

    fn initialise(&self, data: &Path) -> Command {
        let mut command = Command::new(program("initdb"));
        command.args(["--username=postgres", "--auth=trust", "--data-checksums", "--encoding=UTF8"]);
        command.args(["--locale=C", "--no-sync"]).arg(option("--pgdata", data));
        command
    }

    fn server(&self, data: &Path, sockets: &Path, setup: Setup<'_>) -> Command {
        let mut command = Command::new(program("postgres"));
        command.arg("-D").arg(data).arg("-k").arg(sockets).args(["-c", "listen_addresses="]);
        command.args(["-c", &format!("shared_buffers={}MB", setup.cache_mib)]);
        if setup.advised {
            for setting in ["full_page_writes=off", "wal_recycle=off", "wal_init_zero=off"] {
                command.args(["-c", setting]);
            }
        }
        command.args(setup.more);
        command
    }

    /// Fast shutdown.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    /// Immediate shutdown. One that is killed leaves its shared memory in /dev/shm.
    fn end_signal(&self) -> Signal {
        Signal::QUIT
    }

    fn client(&self, sockets: &Path, statements: &str) -> Command {
        let mut command = Command::new(program("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]).arg(sockets);
        command.args(["-c", statements]);
        command
    }

    fn sysbench(&self, sockets: &Path) -> Vec<OsString> {
        let fixed = ["--db-driver=pgsql", "--pgsql-user=postgres", "--pgsql-db=postgres"].map(OsString::from);
        fixed.into_iter().chain([option("--pgsql-host", sockets)]).collect()
    }

    /// That of the user is there.
    fn create(&self, _: &Server<'_>) -> Result<()> {
        Ok(())
    }

    fn workloads(&self) -> &'static [&'static str] {
        &["tpcb-like"]
    }

    fn load(&self, server: &Server<'_>, size: Size) -> Result<()> {
        let mut command = pgbench(server.sockets());
        server.run(command.args(["-i", "-q", "-s", &size.scale.to_string()])).map(|_| ())
    }

    fn drive(&self, sockets: &Path, workload: &str, _: Size, drive: Drive) -> Command {
        let mut command = pgbench(sockets);
        let clients = drive.clients.to_string();
        command.args(["-b", workload, "-c", &clients, "-j", "2", "-T", &drive.time.as_secs().to_string()]);
        command
    }

    fn driven(&self, printed: &str) -> Option<Driven> {
        let transactions = number_after(printed, "actually processed:")?;
        let per_second = number_after(printed, "tps =")?;
        Some(Driven { transactions, per_second, each_second: Vec::new() })
    }

    fn rest(&self, server: &Server<'_>) -> Result<()> {
        server.ask("checkpoint").map(|_| ())
    }

    fn query(&self) -> &'static str {
        "select count(*) from pgbench_accounts where aid < 1000"
    }
}

fn pgbench(sockets: &Path) -> Command {
    let mut command = Command::new(program("pgbench"));
    command.args(["-U", "postgres", "-h"]).arg(sockets).env("PGDATABASE", "postgres");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_understood() {
        let printed = "number of transactions actually processed: 12288\nnumber of failed transactions: 0 (0.000%)\n\
                       latency average = 13.0 ms\ninitial connection time = 12.1 ms\n\
                       tps = 614.25 (without initial connection time)\n";
        let driven = Postgres.driven(printed).expect("understood");
        assert_eq!(driven, Driven { transactions: 12288.0, per_second: 614.25, each_second: Vec::new() });
        assert_eq!(Postgres.driven("pgbench: error"), None);
    }
}
