//! MariaDB, driven by sysbench(1).

use super::{Drive, Driven, Kind, Server, Setup, Size, option, sysbench_driven, wait_until_same};
use crate::error::Result;
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

pub(crate) struct MariaDb;

/// The dirty pages that InnoDB keeps at most, in percent of its cache: the default of the server.
const DIRTY_PERCENT: u32 = 90;

impl Kind for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn user(&self) -> &'static str {
        "mysql"
    }

    fn initialise(&self, data: &Path) -> Command {
        let mut command = Command::new("mariadb-install-db");
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg(option("--datadir", data));
        command
    }

    /// Durable with every commit. `O_DIRECT` is the default of the server, too.
    fn server(&self, data: &Path, sockets: &Path, setup: Setup<'_>) -> Command {
        let mut command = Command::new("/usr/sbin/mariadbd");
        command.args(["--no-defaults", "--skip-networking", "--skip-log-bin"]);
        command.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=O_DIRECT"]);
        command.arg(format!("--innodb-buffer-pool-size={}M", setup.cache_mib));
        command.arg(format!("--innodb-max-dirty-pages-pct={DIRTY_PERCENT}"));
        command.arg(option("--datadir", data)).arg(option("--socket", sockets.join("sock")));
        command.arg(option("--pid-file", sockets.join("pid")));
        if setup.advised {
            command.arg("--innodb-doublewrite=0");
        }
        command.args(setup.more);
        command
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    fn client(&self, sockets: &Path, statements: &str) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"]);
        command.arg(option("--socket", sockets.join("sock"))).arg(option("--execute", statements));
        command
    }

    fn sysbench(&self, sockets: &Path) -> Vec<OsString> {
        let fixed = ["--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest"].map(OsString::from);
        let socket = option("--mysql-socket", sockets.join("sock"));
        fixed.into_iter().chain([socket]).collect()
    }

    fn create(&self, server: &Server<'_>) -> Result<()> {
        server.ask("create database sbtest").map(|_| ())
    }

    fn workloads(&self) -> &'static [&'static str] {
        &["oltp_write_only", "oltp_read_write"]
    }

    fn load(&self, server: &Server<'_>, size: Size) -> Result<()> {
        self.create(server)?;
        let mut command = sysbench(server.sockets(), "oltp_common", size);
        server.run(command.arg("prepare")).map(|_| ())
    }

    fn drive(&self, sockets: &Path, workload: &str, size: Size, drive: Drive) -> Command {
        let mut command = sysbench(sockets, workload, size);
        command.arg(format!("--threads={}", drive.clients)).arg(format!("--time={}", drive.time.as_secs()));
        command.args(["--rand-type=uniform", "--report-interval=1", "run"]);
        command
    }

    fn driven(&self, printed: &str) -> Option<Driven> {
        sysbench_driven(printed)
    }

    fn rest(&self, server: &Server<'_>) -> Result<()> {
        server.ask("set global innodb_max_dirty_pages_pct = 0")?;
        let dirty = "select variable_value from information_schema.global_status \
                     where variable_name = 'INNODB_BUFFER_POOL_PAGES_DIRTY'";
        // Pages of temporary tables stay, and are counted.
        wait_until_same(server, dirty)?;
        server.ask(&format!("set global innodb_max_dirty_pages_pct = {DIRTY_PERCENT}")).map(|_| ())
    }

    fn query(&self) -> &'static str {
        "select count(*) from sbtest.sbtest1 where id < 1000"
    }
}

fn sysbench(sockets: &Path, script: &str, size: Size) -> Command {
    let mut command = Command::new("sysbench");
    command.arg(script).args(MariaDb.sysbench(sockets));
    command.arg(format!("--tables={}", size.tables)).arg(format!("--table-size={}", size.rows));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysbench_prints_is_understood() {
        let printed = "[ 1s ] thds: 8 tps: 596.41 qps: 3578.44 (r/w/o: 0.00/2385.62/1192.81) lat (ms,95%): 20.37 err/s: 0.00\n\
                       [ 2s ] thds: 8 tps: 601.00 qps: 3606.00 (r/w/o: 0.00/2404.00/1202.00) lat (ms,95%): 20.00 err/s: 0.00\n\
                       SQL statistics:\n    queries performed:\n        read:                            0\n    \
                       transactions:                        11932  (596.34 per sec.)\n\nGeneral statistics:\n    \
                       total time:                          20.0000s\n    total number of events:              11932\n";
        let driven = MariaDb.driven(printed).expect("understood");
        assert_eq!(
            driven,
            Driven { transactions: 11932.0, per_second: 596.6, each_second: vec![596.41, 601.0] }
        );
        assert_eq!(MariaDb.driven("FATAL: unable to connect"), None);
    }
}
