//! The workload of the study "Database Performance, LVM Snapshots, golang and sqlite3" (2014): hundreds of
//! versions of a growing SQLite database. The experiment and the demonstration both run it.
//!
//! Each iteration is one transaction: a new investment's value in every period, inserted row by row, then
//! every value of the investment before it updated, row by row.

use crate::error::Result;
use crate::random::{Random, mix};
use rusqlite::{Connection, Statement};
use serde::{Deserialize, Serialize};

/// Iterations of the study.
pub const ITERATIONS: u32 = 95;
/// Rows inserted by one iteration of the study: 26 years of daily values.
pub const PERIODS: u32 = 10_000;

const SCHEMA: &str = "
    create table valuation (id integer not null primary key, investment_id integer not null,
                            period_id integer not null, value real not null);
    create index valuation_investment_idx on valuation(investment_id, period_id);
    create index valuation_period_idx on valuation(period_id, investment_id);";

/// What a table holds, in 16 bytes: two tables with different rows have different sums, but for an
/// accident of 2^-64. The order of rows does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Contents {
    /// Number of rows.
    pub rows: u64,
    /// Wrapping sum of the rows' hashes.
    pub sum: u64,
}

impl Contents {
    fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(row.hash());
    }

    fn replace(&mut self, before: &Row, after: &Row) {
        self.sum = self.sum.wrapping_sub(before.hash()).wrapping_add(after.hash());
    }

    /// Reads the whole table.
    pub fn read(connection: &Connection) -> Result<Self> {
        let mut select = connection.prepare("select id, investment_id, period_id, value from valuation")?;
        let mut rows = select.query([])?;
        let mut contents = Self::default();
        while let Some(row) = rows.next()? {
            let row =
                Row { id: row.get(0)?, investment: row.get(1)?, period: row.get(2)?, value: row.get(3)? };
            contents.add(&row);
        }
        Ok(contents)
    }
}

#[derive(Clone, Copy)]
struct Row {
    id: i64,
    investment: i64,
    period: i64,
    value: f64,
}

impl Row {
    fn hash(&self) -> u64 {
        let Self { id, investment, period, value } = *self;
        [id.cast_unsigned(), investment.cast_unsigned(), period.cast_unsigned(), value.to_bits()]
            .into_iter()
            .fold(0, |hash, word| mix(hash.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ word))
    }
}

/// The workload under way on one connection.
pub struct Valuation<'connection> {
    connection: &'connection Connection,
    insert: Statement<'connection>,
    update: Statement<'connection>,
    periods: u32,
    random: Random,
    iterations_done: u32,
    /// Values of the newest investment, by period.
    newest: Vec<f64>,
    contents: Contents,
    /// The values are drawn, and nothing is written: an earlier life has done it.
    pretending: bool,
}

impl<'connection> Valuation<'connection> {
    /// Makes the table and its indexes in an empty database.
    pub fn begin(connection: &'connection Connection, periods: u32, seed: u64) -> Result<Self> {
        connection.execute_batch(SCHEMA)?;
        Self::resume(connection, periods, seed, 0)
    }

    /// Goes on with a database that holds so many iterations of this workload.
    pub fn resume(
        connection: &'connection Connection,
        periods: u32,
        seed: u64,
        iterations: u32,
    ) -> Result<Self> {
        let mut this = Self {
            connection,
            insert: connection
                .prepare("insert into valuation(investment_id, period_id, value) values (?1, ?2, ?3)")?,
            update: connection
                .prepare("update valuation set value = ?1 where investment_id = ?2 and period_id = ?3")?,
            periods,
            random: Random::new(seed),
            iterations_done: 0,
            newest: Vec::new(),
            contents: Contents::default(),
            pretending: true,
        };
        for _ in 0..iterations {
            this.work()?;
        }
        this.pretending = false;
        Ok(this)
    }

    /// One iteration: one transaction, durable on return.
    pub fn iterate(&mut self) -> Result<()> {
        self.connection.execute_batch("begin")?;
        self.work()?;
        Ok(self.connection.execute_batch("commit")?)
    }

    /// Iterations that the database holds.
    #[must_use]
    pub fn iterations_done(&self) -> u32 {
        self.iterations_done
    }

    fn work(&mut self) -> Result<()> {
        let before = std::mem::take(&mut self.newest);
        self.insert_newest()?;
        self.update_previous(&before)?;
        self.iterations_done += 1;
        Ok(())
    }

    /// What the table must hold now: computed from the values as they were drawn, not read back.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.contents
    }

    fn insert_newest(&mut self) -> Result<()> {
        let investment = i64::from(self.iterations_done) + 1;
        for period in 1..=i64::from(self.periods) {
            let value = self.random.fraction();
            if !self.pretending {
                self.insert.execute((investment, period, value))?;
            }
            let id = i64::from(self.iterations_done) * i64::from(self.periods) + period;
            self.contents.add(&Row { id, investment, period, value });
            self.newest.push(value);
        }
        Ok(())
    }

    fn update_previous(&mut self, before: &[f64]) -> Result<()> {
        let investment = i64::from(self.iterations_done);
        for (period, &value) in (1_i64..).zip(before) {
            let changed = self.random.fraction();
            if !self.pretending {
                self.update.execute((changed, investment, period))?;
            }
            let id = (investment - 1) * i64::from(self.periods) + period;
            let row = Row { id, investment, period, value };
            self.contents.replace(&row, &Row { value: changed, ..row });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_what_the_table_holds() {
        let connection = Connection::open_in_memory().expect("opened");
        let mut workload = Valuation::begin(&connection, 50, 1).expect("schema");
        let mut seen = vec![workload.contents()];
        for iteration in 1..=4 {
            workload.iterate().expect("iterated");
            assert_eq!(workload.contents(), Contents::read(&connection).expect("read"));
            assert_eq!(workload.contents().rows, iteration * 50);
            seen.push(workload.contents());
        }
        let updated: u32 = connection
            .query_row("select count(distinct value) from valuation", [], |row| row.get(0))
            .expect("counted");
        assert_eq!(updated, 200);
        seen.dedup();
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn a_workload_goes_on_where_it_was_left() {
        let (whole, parts) = (Connection::open_in_memory(), Connection::open_in_memory());
        let (whole, parts) = (whole.expect("opened"), parts.expect("opened"));
        let mut workload = Valuation::begin(&whole, 20, 7).expect("schema");
        (0..5).for_each(|_| workload.iterate().expect("iterated"));
        drop(Valuation::begin(&parts, 20, 7).expect("schema"));
        for done in 0..5 {
            let mut workload = Valuation::resume(&parts, 20, 7, done).expect("resumed");
            assert_eq!(workload.contents(), Contents::read(&parts).expect("read"));
            workload.iterate().expect("iterated");
        }
        assert_eq!(Contents::read(&parts).expect("read"), workload.contents());
        assert_eq!(Contents::read(&whole).expect("read"), workload.contents());
    }

    #[test]
    fn one_changed_value_changes_the_sum() {
        let connection = Connection::open_in_memory().expect("opened");
        let mut workload = Valuation::begin(&connection, 10, 1).expect("schema");
        workload.iterate().expect("iterated");
        connection.execute("update valuation set value = value + 1e-9 where id = 7", []).expect("changed");
        assert_ne!(workload.contents(), Contents::read(&connection).expect("read"));
    }
}
