//! MariaDB.

use crate::full::Limit;
use crate::server::{ACCOUNTS, BALANCE, Care, Kind, Running, as_user, succeeded};
use crate::{fixture, full, scenarios};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

pub struct MariaDb;

impl Kind for MariaDb {
    fn user(&self) -> &'static str {
        "mysql"
    }

    fn initialise(&self, data: &Path) -> Command {
        let mut command = Command::new("mariadb-install-db");
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg(format!("--datadir={}", data.display())).args(options());
        command
    }

    fn adopt(&self, _data: &Path) {}

    fn server(&self, data: &Path, sockets: &Path, care: Care) -> Command {
        let mut command = Command::new("/usr/sbin/mariadbd");
        command.args(["--no-defaults", "--skip-networking"]);
        command.arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", sockets.join("sock").display()));
        command.arg(format!("--pid-file={}", sockets.join("pid").display())).args(options());
        if care == Care::Trusting {
            command.args(["--innodb-doublewrite=0", "--innodb-max-dirty-pages-pct=0"]);
        }
        command
    }

    fn client(&self, sockets: &Path) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--unbuffered", "--user=root"]);
        command.arg(format!("--socket={}", sockets.join("sock").display())).arg("--database=mysql");
        command
    }

    fn last_words(&self) -> &'static [&'static str] {
        &[r#"[FATAL] InnoDB: pwrite("ib_logfile0") returned -1"#]
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    fn schema(&self) -> String {
        format!(
            "create database bank; use bank;
             create table accounts (id int primary key, balance bigint not null, filler varchar(200)) engine=innodb;
             create table journal (number bigint primary key, filler varchar(200)) engine=innodb;
             insert into accounts with recursive s(n) as (select 1 union all select n + 1 from s where n < {ACCOUNTS})
             select n, {BALANCE}, repeat('x', 150) from s;"
        )
    }

    fn transaction(&self, number: u64) -> String {
        let (from, to) = (number % ACCOUNTS + 1, number * 7 % ACCOUNTS + 1);
        format!(
            "use bank; begin; update accounts set balance = balance - 1 where id = {from}; \
             update accounts set balance = balance + 1 where id = {to}; \
             insert into journal values ({number}, repeat('y', 150)); commit; select {number};\n"
        )
    }

    fn prepare_load(&self, running: &Running<'_>) {
        running.ask("create database sbtest;");
        let mut command = running.as_its_user(sysbench(running.sockets.path()));
        succeeded("sysbench prepare", &command.arg("prepare").output().unwrap());
    }

    fn load(&self, sockets: &Path) -> Command {
        let mut command = sysbench(sockets);
        command.args(["--threads=2", "--time=600", "run"]);
        command
    }

    /// Each transaction of the load deletes a row and inserts it again.
    fn check(&self, running: &Running<'_>) {
        let said = running.ask("check table bank.accounts, bank.journal extended;");
        assert_eq!(said.matches("status\tOK").count(), 2, "{said}");
        if running.ask("show databases like 'sbtest';").is_empty() {
            return;
        }
        let said = running.ask("check table sbtest.sbtest1 extended; select count(*) from sbtest.sbtest1;");
        assert!(said.contains("status\tOK") && said.ends_with(&ROWS.to_string()), "{said}");
    }

    fn check_files(&self, data: &Path) {
        for table in ["accounts", "journal"] {
            let mut command = Command::new("innochecksum");
            let output = command.arg(data.join("bank").join(format!("{table}.ibd"))).output().unwrap();
            succeeded("innochecksum", &output);
        }
    }

    fn is_trusting(&self, running: &Running<'_>) -> bool {
        running.ask("select @@innodb_doublewrite;") == "0"
    }

    fn back_up(&self, running: &Running<'_>, to: &Path) {
        let target = format!("--target-dir={}", to.display());
        let mut command = Command::new("mariadb-backup");
        command.args(["--no-defaults", "--backup", "--user=root", &target]);
        command.arg(format!("--socket={}", running.sockets.path().join("sock").display()));
        command.arg(format!("--datadir={}", running.data.display()));
        succeeded("mariadb-backup", &as_user(command, self.user()).output().unwrap());
        let mut command = Command::new("mariadb-backup");
        command.args(["--no-defaults", "--prepare", &target]);
        succeeded("mariadb-backup --prepare", &as_user(command, self.user()).output().unwrap());
    }
}

/// Rows in the table of the load.
const ROWS: u64 = 2000;

fn sysbench(sockets: &Path) -> Command {
    let mut command = Command::new("sysbench");
    command.args(["oltp_read_write", "--mysql-user=root", "--tables=1", "--rand-type=uniform"]);
    command.arg(format!("--table-size={ROWS}"));
    command.arg(format!("--mysql-socket={}", sockets.join("sock").display()));
    command
}

/// Small and durable. `O_DIRECT`: what InnoDB does on servers.
fn options() -> [&'static str; 6] {
    [
        "--innodb-buffer-pool-size=16M",
        "--innodb-log-file-size=8M",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-flush-method=O_DIRECT",
        "--innodb-fast-shutdown=1",
        "--log-warnings=1",
    ]
}

#[test]
fn mariadb_is_snapshotted_cloned_and_rolled_back() {
    if fixture::can_mount() {
        scenarios::scenario(&MariaDb, "bank");
    }
}

#[test]
fn mariadb_loses_nothing_when_the_mount_is_killed() {
    if fixture::can_mount() {
        scenarios::killed(&MariaDb, "bank");
    }
}

#[test]
fn mariadb_goes_on_after_a_full_pool() {
    if fixture::can_mount() {
        full::filled(&MariaDb, "bank", Limit::Pool);
    }
}
