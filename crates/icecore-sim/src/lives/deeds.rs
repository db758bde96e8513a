//! What lives have come to, in numbers: a soak that never collected has shown nothing about collection.

use std::fmt;
use std::ops::AddAssign;

/// Counts of what happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Deeds {
    /// Lives that ended well.
    pub lives: u64,
    /// Days, each with a full check.
    pub days: u64,
    /// Steps of histories.
    pub steps: u64,
    /// Snapshots destroyed by pruning.
    pub pruned: u64,
    /// Crashes and kills.
    pub crashes: u64,
    /// Of them, those during a recovery.
    pub crashes_of_recoveries: u64,
    /// Calls that failed on purpose.
    pub faults: u64,
    /// Failures after which a pool takes no more writes.
    pub failures: u64,
    /// Refusals for want of room or for a quota.
    pub refusals: u64,
    /// Segments that were emptied by collection.
    pub collected: u64,
    /// Bytes that collection left behind, as they had died since the last checkpoint.
    pub left_behind_bytes: u64,
    /// Readers that read to the end what they had pinned.
    pub readers: u64,
    /// Quotas and reservations that were set.
    pub limits: u64,
    /// Reservations that were written to the last of what was unused.
    pub claims: u64,
    /// Scrubs, or parts of one.
    pub scrubs: u64,
    /// Of them, those that came to the end.
    pub scrubbed: u64,
    /// Checks of a pool that no process had open, with all data.
    pub checks: u64,
    /// Places that were damaged on purpose, of which there was a second one.
    pub rotten: u64,
    /// Places that were healed.
    pub healed: u64,
}

impl Deeds {
    const fn list(&self) -> [(&'static str, u64); 19] {
        [
            ("lives", self.lives),
            ("days", self.days),
            ("steps", self.steps),
            ("snapshots pruned", self.pruned),
            ("crashes", self.crashes),
            ("during recovery", self.crashes_of_recoveries),
            ("failed calls", self.faults),
            ("failed pools", self.failures),
            ("refusals", self.refusals),
            ("segments emptied", self.collected),
            ("MiB left behind in them", self.left_behind_bytes >> 20),
            ("long readers", self.readers),
            ("limits", self.limits),
            ("reservations claimed", self.claims),
            ("scrubs", self.scrubs),
            ("to the end", self.scrubbed),
            ("checks", self.checks),
            ("places damaged", self.rotten),
            ("healed", self.healed),
        ]
    }
}

impl AddAssign for Deeds {
    fn add_assign(&mut self, other: Self) {
        self.lives += other.lives;
        self.days += other.days;
        self.steps += other.steps;
        self.pruned += other.pruned;
        self.crashes += other.crashes;
        self.crashes_of_recoveries += other.crashes_of_recoveries;
        self.faults += other.faults;
        self.failures += other.failures;
        self.refusals += other.refusals;
        self.collected += other.collected;
        self.left_behind_bytes += other.left_behind_bytes;
        self.readers += other.readers;
        self.limits += other.limits;
        self.claims += other.claims;
        self.scrubs += other.scrubs;
        self.scrubbed += other.scrubbed;
        self.checks += other.checks;
        self.rotten += other.rotten;
        self.healed += other.healed;
    }
}

impl fmt::Display for Deeds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.list().iter().map(|(name, count)| format!("{count} {name}")).collect();
        formatter.write_str(&parts.join(", "))
    }
}
