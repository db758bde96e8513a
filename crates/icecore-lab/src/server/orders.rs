//! A workload like TPC-C: `orders.lua`, a script of sysbench(1) for both servers.
//!
//! Its figure is new orders a minute, counted by the database itself. Think time, terminals and the rules of
//! reporting are left out, so it is no result of TPC-C.

use super::{Drive, Driven, Server, number_after, sysbench_driven};
use crate::error::{Doing as _, Error, Result};
use crate::tool::tail;
use std::io::Write as _;
use std::process::Command;
use tempfile::NamedTempFile;

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub warehouses: u64,
    /// 100,000 in the specification.
    pub items: u64,
    /// Of a district, of which a warehouse has ten; 3,000 in the specification.
    pub customers: u64,
}

/// The workload for one scale.
pub(crate) struct Orders {
    script: NamedTempFile,
    scale: Scale,
}

/// What was done in a run.
pub(crate) struct Ordered {
    pub new_orders_per_minute: f64,
    pub all: Driven,
}

impl Orders {
    pub(crate) fn new(scale: Scale) -> Result<Self> {
        let doing = || "make a script of sysbench".to_owned();
        let mut script = tempfile::Builder::new().suffix(".lua").tempfile().doing(doing)?;
        script.write_all(include_bytes!("orders.lua")).doing(doing)?;
        Ok(Self { script, scale })
    }

    fn command(&self, server: &Server<'_>) -> Command {
        let Scale { warehouses, items, customers } = self.scale;
        let mut command = Command::new("sysbench");
        command.arg(self.script.path()).args(server.kind().sysbench(server.sockets()));
        command.args([format!("--warehouses={warehouses}"), format!("--items={items}")]);
        command.arg(format!("--customers={customers}"));
        command
    }

    /// Makes the database and its tables, and fills them.
    pub(crate) fn load(&self, server: &Server<'_>) -> Result<()> {
        server.kind().create(server)?;
        server.run(self.command(server).arg("prepare")).map(|_| ())
    }

    /// Drives the server. Connections that deadlock begin their transaction anew.
    pub(crate) fn drive(&self, server: &Server<'_>, drive: Drive) -> Result<Ordered> {
        let before = self.count(server)?;
        let mut command = self.command(server);
        command.arg(format!("--threads={}", drive.clients)).arg(format!("--time={}", drive.time.as_secs()));
        let printed = server.run(command.args(["--report-interval=1", "run"]))?;
        let all = sysbench_driven(&printed).ok_or_else(|| unreadable(&printed))?;
        let minutes = all.transactions / all.per_second / 60.0;
        Ok(Ordered { new_orders_per_minute: (self.count(server)? - before) / minutes, all })
    }

    /// New orders that were committed since the tables were made, and a constant.
    fn count(&self, server: &Server<'_>) -> Result<f64> {
        let printed = server.run(self.command(server).arg("count"))?;
        number_after(&printed, "orders:").ok_or_else(|| unreadable(&printed))
    }

    /// Holds the database against the conditions of consistency of the specification (clauses 3.3.2.1 to
    /// 3.3.2.9).
    pub(crate) fn check(&self, server: &Server<'_>) -> Result<()> {
        server.run(self.command(server).arg("check")).map(|_| ())
    }
}

fn unreadable(printed: &str) -> Error {
    let reason = format!("it did not print what was done: {}", tail(printed));
    Error::Child { job: "sysbench".to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::programs;
    use crate::server::{self, Kind, Setup, mariadb::MariaDb, postgres::Postgres};
    use std::time::Duration;

    const KINDS: [&dyn Kind; 2] = [&MariaDb, &Postgres];

    #[test]
    fn what_it_leaves_is_consistent_and_what_is_not_is_found() {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || crate::systems::has_program("sysbench", "sysbench").is_err() {
            eprintln!("left out: it needs root and sysbench");
            return;
        }
        for kind in KINDS {
            if programs::require(kind.name(), "").is_err() {
                eprintln!("left out: {} is not there", kind.name());
                continue;
            }
            let folder = tempfile::tempdir().expect("a folder");
            server::open_to_all(folder.path()).expect("opened");
            let (options, data) = (Options::new(folder.path()), folder.path().join("data"));
            server::make_empty(kind, &data, &options).expect("made");
            let setup = Setup { cache_mib: 32, ..Setup::default() };
            let server = Server::start(kind, &data, setup, "select 1", &options).expect("started");
            let orders = Orders::new(Scale { warehouses: 2, items: 500, customers: 20 }).expect("a script");
            assert!(orders.check(&server).is_err(), "there are no tables");
            orders.load(&server).expect("loaded");
            orders.check(&server).expect("consistent");
            let drive = Drive { clients: 4, time: Duration::from_secs(1) };
            let ordered = orders.drive(&server, drive).expect("driven");
            assert!(ordered.new_orders_per_minute > 0.0 && ordered.all.per_second > 0.0);
            orders.check(&server).expect("still consistent");
            let schema = if kind.name() == "mariadb" { "sbtest." } else { "" };
            let of_ytd = |step: &str| {
                format!("update {schema}district set d_ytd = d_ytd {step} where d_w_id = 1 and d_id = 1")
            };
            let of_delivery = |time: &str| {
                format!(
                    "update {schema}order_line set ol_delivery_d = {time} where ol_w_id = 1 and ol_d_id = 1 \
                     and ol_o_id = 1"
                )
            };
            let breaks = |statement: &str| {
                server.ask(statement).expect("changed");
                let found = orders.check(&server).expect_err("a condition is broken").to_string();
                assert!(found.contains("not consistent"), "{statement}: {found}");
            };
            breaks(&of_ytd("+ 1"));
            server.ask(&of_ytd("- 1")).expect("changed back");
            breaks(&of_delivery("null"));
            server.ask(&of_delivery("now()")).expect("changed back");
            // No lines at all are no sum of their own.
            breaks(&format!("delete from {schema}history where h_w_id = 2"));
            server.stop().expect("stopped");
        }
    }
}
