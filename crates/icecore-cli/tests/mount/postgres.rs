//! PostgreSQL.

use crate::full::Limit;
use crate::server::{ACCOUNTS, BALANCE, Care, Kind, Running, as_user, succeeded};
use crate::{fixture, full, scenarios};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Postgres;

/// Debian keeps the programs of each version in a folder of their own.
fn binary(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL: scripts/install-tools");
    let mut folders: Vec<_> = versions.map(|entry| entry.unwrap().path().join("bin")).collect();
    folders.sort();
    folders.pop().expect("a version of PostgreSQL").join(name)
}

fn pgbench(sockets: &Path) -> Command {
    let mut command = Command::new(binary("pgbench"));
    command.arg("--host").arg(sockets).args(["--username=postgres", "postgres"]);
    command
}

impl Kind for Postgres {
    fn user(&self) -> &'static str {
        "postgres"
    }

    fn initialise(&self, data: &Path) -> Command {
        let mut command = Command::new(binary("initdb"));
        command.args(["--username=postgres", "--auth=trust", "--data-checksums", "--encoding=UTF8"]);
        command.args(["--locale=C", "--pgdata"]).arg(data);
        command
    }

    /// The number of a process in it may be that of another one by now.
    fn adopt(&self, data: &Path) {
        let file = data.join("postmaster.pid");
        if file.exists() {
            std::fs::remove_file(file).unwrap();
        }
    }

    fn server(&self, data: &Path, sockets: &Path, care: Care) -> Command {
        let mut command = Command::new(binary("postgres"));
        command.arg("-D").arg(data).arg("-k").arg(sockets).args(["-c", "listen_addresses="]);
        command.args(["-c", "shared_buffers=16MB", "-c", "max_wal_size=64MB", "-c", "min_wal_size=32MB"]);
        if care == Care::Trusting {
            command.args([
                "-c",
                "full_page_writes=off",
                "-c",
                "shared_buffers=256kB",
                "-c",
                "bgwriter_delay=10ms",
            ]);
        }
        command
    }

    fn client(&self, sockets: &Path) -> Command {
        let mut command = Command::new(binary("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]).arg(sockets);
        command
    }

    /// It aborts the startup if the process of the recovery exits, and shuts down if a signal ends that.
    fn last_words(&self) -> &'static [&'static str] {
        &["aborting startup due to startup process failure", "shutting down due to startup process failure"]
    }

    /// Fast shutdown.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    /// Immediate shutdown. One that is killed leaves its shared memory in /dev/shm.
    fn end_signal(&self) -> Signal {
        Signal::QUIT
    }

    fn schema(&self) -> String {
        format!(
            "create extension amcheck;
             create table accounts (id int primary key, balance bigint not null, filler text);
             create table journal (number bigint primary key, filler text);
             insert into accounts select n, {BALANCE}, repeat('x', 150) from generate_series(1, {ACCOUNTS}) n;"
        )
    }

    fn transaction(&self, number: u64) -> String {
        let (from, to) = (number % ACCOUNTS + 1, number * 7 % ACCOUNTS + 1);
        format!(
            "begin; update accounts set balance = balance - 1 where id = {from}; \
             update accounts set balance = balance + 1 where id = {to}; \
             insert into journal values ({number}, repeat('y', 150)); commit; select {number};\n"
        )
    }

    fn prepare_load(&self, running: &Running<'_>) {
        let mut command = running.as_its_user(pgbench(running.sockets.path()));
        succeeded("pgbench -i", &command.args(["--initialize", "--quiet"]).output().unwrap());
    }

    fn load(&self, sockets: &Path) -> Command {
        let mut command = pgbench(sockets);
        command.args(["--client=2", "--time=600", "--no-vacuum"]);
        command
    }

    /// Each transaction of the load adds one amount to an account, a teller, a branch and the history.
    fn check(&self, running: &Running<'_>) {
        running.ask(
            "select bt_index_parent_check(c.oid, true) from pg_class c join pg_am a on a.oid = c.relam
             where a.amname = 'btree' and c.relkind = 'i' and c.relpersistence = 'p';
             do $$ declare damage record; begin
                 for damage in select c.relname, d.* from pg_class c, verify_heapam(c.oid) d
                 where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace loop
                     raise exception 'corrupt: %', damage;
                 end loop; end $$;",
        );
        if running.ask("select to_regclass('pgbench_history');").is_empty() {
            return;
        }
        let said = running.ask(
            "select count(distinct total) from (
             select sum(abalance) total from pgbench_accounts union all select sum(tbalance) from pgbench_tellers
             union all select sum(bbalance) from pgbench_branches
             union all select coalesce(sum(delta), 0) from pgbench_history) totals;",
        );
        assert_eq!(said, "1", "the totals of the load differ");
    }

    fn check_files(&self, data: &Path) {
        let mut command = Command::new(binary("pg_checksums"));
        command.arg("--check").arg("--pgdata").arg(data);
        succeeded("pg_checksums", &as_user(command, self.user()).output().unwrap());
    }

    fn is_trusting(&self, running: &Running<'_>) -> bool {
        running.ask("show full_page_writes;") == "off"
    }

    fn back_up(&self, running: &Running<'_>, to: &Path) {
        let mut command = Command::new(binary("pg_basebackup"));
        command.args(["--username=postgres", "--checkpoint=fast", "--wal-method=stream", "--host"]);
        command.arg(running.sockets.path()).arg("--pgdata").arg(to);
        succeeded("pg_basebackup", &as_user(command, self.user()).output().unwrap());
    }
}

#[test]
fn postgres_is_snapshotted_cloned_and_rolled_back() {
    if fixture::can_mount() {
        scenarios::scenario(&Postgres, "");
    }
}

#[test]
fn postgres_loses_nothing_when_the_mount_is_killed() {
    if fixture::can_mount() {
        scenarios::killed(&Postgres, "");
    }
}

#[test]
fn postgres_goes_on_after_a_full_pool() {
    if fixture::can_mount() {
        full::filled(&Postgres, "", Limit::Pool);
    }
}

#[test]
fn postgres_goes_on_after_a_quota() {
    if fixture::can_mount() {
        full::filled(&Postgres, "", Limit::Quota);
    }
}
