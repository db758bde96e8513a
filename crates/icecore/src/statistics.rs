//! Counters, from the start: operations and bytes by kind, flushes, group sizes, latencies.

use crate::copies::CopiesReport;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Latencies {
    commit: Histogram<u64>,
    group: Histogram<u64>,
    snapshot: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("bounds are in order");
        Self { commit: histogram(), group: histogram(), snapshot: histogram() }
    }
}

impl Counters {
    /// One group flush that made `operations` durable.
    pub(crate) fn commit(&self, operations: u64, took: Duration) {
        self.commits.add(1);
        self.committed_operations.add(operations);
        self.commit_time.add(took.as_nanos() as u64);
        let mut latencies = self.latencies.lock();
        latencies.commit.saturating_record(took.as_nanos() as u64);
        latencies.group.saturating_record(operations);
    }

    /// One snapshot call.
    pub(crate) fn snapshot(&self, took: Duration) {
        self.snapshots.add(1);
        self.latencies.lock().snapshot.saturating_record(took.as_nanos() as u64);
    }

    /// The figures at this moment.
    pub(crate) fn read(&self) -> Statistics {
        let latencies = self.latencies.lock();
        let quantiles = |histogram: &Histogram<u64>| Quantiles {
            count: histogram.len(),
            median: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        };
        Statistics {
            commit_nanoseconds: quantiles(&latencies.commit),
            operations_per_commit: quantiles(&latencies.group),
            snapshot_nanoseconds: quantiles(&latencies.snapshot),
            ..self.counted()
        }
    }
}

/// Where half, most and all values of something lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Half are at most this.
    pub median: u64,
    /// 99 of 100 are at most this.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

macro_rules! statistics {
    (
        counted { $($(#[$counted_meta:meta])* $counted:ident,)* }
        found { $($(#[$found_meta:meta])* $found:ident,)* }
    ) => {
        /// What a pool has done since it was opened.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub $counted: Counter,)*
            /// Nanoseconds of all group flushes together.
            pub commit_time: Counter,
            latencies: Mutex<Latencies>,
        }

        impl Counters {
            fn counted(&self) -> Statistics {
                Statistics { $($counted: self.$counted.get(),)* ..Statistics::default() }
            }
        }

        /// What a pool has done since it was opened, and how full it is. Bytes unless said otherwise.
        #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct Statistics {
            $($(#[$counted_meta])* pub $counted: u64,)*
            $($(#[$found_meta])* pub $found: u64,)*
            /// Time of a group flush.
            pub commit_nanoseconds: Quantiles,
            /// Operations that one flush made durable.
            pub operations_per_commit: Quantiles,
            /// Time of a snapshot call.
            pub snapshot_nanoseconds: Quantiles,
            /// Why the pool takes no more writes, if so.
            pub failure: Option<String>,
            /// What collection is doing, and why.
            pub collector: String,
            /// How second copies stand.
            pub copies: CopiesReport,
            /// Why other processes cannot reach the pool while it is open, if they were meant to and cannot.
            /// Never asked for by them.
            #[serde(skip)]
            pub unreachable: Option<String>,
        }

        impl Statistics {
            /// All counters by name, in a stable order.
            #[must_use]
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($counted), self.$counted),)*
                    $((stringify!($found), self.$found),)*
                ]
            }

            /// Bytes written to disk, of every kind.
            #[must_use]
            pub fn written_bytes(&self) -> u64 {
                let logged = self.logged_data_bytes + self.logged_header_bytes;
                let moved = self.moved_data_bytes + self.moved_header_bytes + self.moved_node_bytes;
                let first = self.node_bytes + self.checkpoint_bytes + self.frame_bytes + self.ahead_bytes;
                logged + moved + first + self.copied_bytes()
            }

            /// Bytes written to second copies, of every kind.
            #[must_use]
            pub fn copied_bytes(&self) -> u64 {
                let metadata = self.copy_node_bytes + self.copy_checkpoint_bytes + self.copy_frame_bytes;
                metadata + self.copy_data_bytes + self.copy_restored_bytes
            }

            /// Bytes written to disk for each byte that callers wrote; 0 before any.
            #[must_use]
            pub fn write_amplification(&self) -> f64 {
                if self.write_bytes == 0 { 0.0 } else { self.written_bytes() as f64 / self.write_bytes as f64 }
            }

            /// How full the segments were that collection emptied, 0 to 1; 0 before any.
            #[must_use]
            pub fn collected_utilisation(&self) -> f64 {
                let moved = self.moved_data_bytes + self.moved_node_bytes;
                if self.collected_bytes == 0 { 0.0 } else { moved as f64 / self.collected_bytes as f64 }
            }
        }
    };
}

// What is counted as it happens, and what is looked up on request.
statistics! {
    counted {
        /// Write calls.
        write_calls,
        /// Bytes written by callers.
        write_bytes,
        /// Read calls.
        read_calls,
        /// Bytes read by callers.
        read_bytes,
        /// File data written.
        logged_data_bytes,
        /// Record headers written, with the small writes in them.
        logged_header_bytes,
        /// Tree nodes written.
        node_bytes,
        /// Ledger blobs written.
        checkpoint_bytes,
        /// Superblocks, segment headers and checksum tables written.
        frame_bytes,
        /// Zeros written ahead.
        ahead_bytes,
        /// Data moved by collection.
        moved_data_bytes,
        /// Headers of runs of moved data.
        moved_header_bytes,
        /// Tree nodes moved by collection.
        moved_node_bytes,
        /// Flushes, in number.
        flushes,
        /// Group flushes of the log, in number.
        commits,
        /// Operations made durable, in number.
        committed_operations,
        /// Checkpoints, in number.
        checkpoints,
        /// Checkpoints of nothing but what collection moved, in number.
        moves_recorded,
        /// Snapshot calls, in number.
        snapshots,
        /// Data read from disk for callers.
        disk_read_bytes_data,
        /// Tree nodes read from disk.
        disk_read_bytes_node,
        /// Read from disk by scrub.
        disk_read_bytes_scrub,
        /// Read from disk by replay.
        disk_read_bytes_replay,
        /// Read from disk by collection.
        disk_read_bytes_collect,
        /// Chunks of the location map read from disk.
        disk_read_bytes_map,
        /// Blocks found in memory, in number.
        block_cache_hits,
        /// Tree nodes found in memory, in number.
        node_cache_hits,
        /// Tree nodes not found in memory, in number.
        node_cache_misses,
        /// Segment files made, in number.
        segments_created,
        /// Segments used again, in number.
        segments_recycled,
        /// Segments emptied by collection, in number.
        segments_collected,
        /// Room in the segments that collection emptied.
        collected_bytes,
        /// Data in them that had died since the last checkpoint, and need not be moved.
        left_behind_bytes,
        /// Times that a writer had to wait for a checkpoint.
        stalls,
    }
    found {
        /// Tree nodes written to copies.
        copy_node_bytes,
        /// Ledger blobs written to copies.
        copy_checkpoint_bytes,
        /// Superblocks, segment headers and checksum tables written to copies.
        copy_frame_bytes,
        /// The log, and runs outside of it, written to copies.
        copy_data_bytes,
        /// Written to copies that were made of what was there before, or mended.
        copy_restored_bytes,
        /// Flushes of copies, in number: not among `flushes`.
        copy_flushes,
        /// Segments that wait for a checkpoint to be free, having been emptied, in number.
        segments_vacated,
        /// Segments that collection leaves alone because something in them cannot be read, in number.
        segments_corrupt,
        /// Live data and nodes.
        live_bytes,
        /// What any version reaches: `live_bytes` and `dirty_bytes` without what waits to be freed.
        used_bytes,
        /// What only destroyed versions reach that are still to be taken apart.
        freeing_bytes,
        /// Destroyed versions that are still to be taken apart, in number.
        freeing_versions,
        /// What the pool may grow to: its size limit, or what its medium has room for.
        capacity_bytes,
        /// Most that the files of the pool may take up together; 0 for no limit.
        size_limit_bytes,
        /// What can still be written beside the reserve: in segments that are free, to be made, or to be
        /// gathered from what is dead.
        available_bytes,
        /// The reserve that data may not take: for what frees, and keeps the pool going. Grows while much is
        /// written.
        kept_bytes,
        /// All segment files together.
        segment_file_bytes,
        /// All copies of segments together.
        copy_file_bytes,
        /// Segments that should have a copy and have none, in number.
        copies_missing,
        /// Free segments, in number.
        segments_free,
        /// Segments, in number.
        segments,
        /// Log that a recovery would replay.
        log_bytes,
        /// Tree nodes waiting for a checkpoint.
        dirty_bytes,
        /// Versions pinned by readers, in number.
        pins,
        /// Reads that the disk refused, in number.
        failed_reads,
        /// Writes that the disk refused, in number.
        failed_writes,
        /// Flushes that the disk refused, in number.
        failed_flushes,
        /// Times that bytes were read that are not what was written.
        damaged_reads,
        /// Places that were healed from their copies, and copies that were mended, in number.
        healed_places,
        /// Times that something could be read from a copy, and not be written again, in number.
        unhealed_places,
    }
}
