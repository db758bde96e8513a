//! What the log says: every change to a pool is one of these operations, executed in sequence both when it
//! is made and when it is replayed. Nothing in them may depend on a clock, on chance or on a cache.

mod stretches;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use stretches::Stretch;
pub use stretches::Stretches;

use crate::format::record::RecordView;
use crate::units::{
    BLOCK_BYTES, DatasetId, FILE_BYTES_MAX, FileBlock, InodeNumber, LogAddress, SegmentId, Slot, Timestamp,
    VersionId,
};
use serde::{Deserialize, Serialize};

use crate::namespace::{AttributeChange, NewInode, RenameHow, XattrHow};

/// One change. Encoded with postcard: the order of variants and fields is part of the format.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Operation {
    /// Nothing; the record's header says up to where the log is durable.
    Mark,
    /// The log goes on in slot 1 of another segment.
    Switch {
        /// The segment.
        segment: SegmentId,
        /// Its use.
        incarnation: u64,
    },
    /// Whole blocks of a file: the data blocks of the record, in order.
    Write(Write),
    /// Bytes of a file, less than a block or across a border.
    WriteInline {
        /// Where the file is.
        dataset: DatasetId,
        /// The file.
        inode: InodeNumber,
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// Modification time.
        time: Timestamp,
    },
    /// Means nothing: it holds the place of a number that no operation has, and is refused.
    Reserved,
    /// A new size; what lies behind is dropped.
    Truncate {
        /// Where the file is.
        dataset: DatasetId,
        /// The file.
        inode: InodeNumber,
        /// Size in bytes.
        size: u64,
        /// Modification time.
        time: Timestamp,
    },
    /// A range that reads as zeros from now on.
    PunchHole {
        /// Where the file is.
        dataset: DatasetId,
        /// The file.
        inode: InodeNumber,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Modification time.
        time: Timestamp,
    },
    /// A change to the tree of files.
    Namespace {
        /// The dataset.
        dataset: DatasetId,
        /// The change.
        operation: NamespaceOperation,
    },
    /// Frees part of an unlinked file that no process has open any more.
    ReleaseOrphan {
        /// The dataset.
        dataset: DatasetId,
        /// The file.
        inode: InodeNumber,
        /// Most items to free in this step.
        items_max: u32,
    },
    /// A new, empty dataset.
    CreateDataset {
        /// Its name.
        name: String,
        /// Creation time.
        time: Timestamp,
        /// User properties.
        properties: Vec<(String, String)>,
    },
    /// Snapshots of several datasets at one moment.
    Snapshot {
        /// Dataset, and name of its snapshot.
        snapshots: Vec<(DatasetId, String)>,
        /// Creation time.
        time: Timestamp,
        /// User properties of each of them.
        properties: Vec<(String, String)>,
    },
    /// Snapshots go, in this order.
    DestroySnapshots {
        /// Their versions.
        versions: Vec<VersionId>,
    },
    /// Datasets go, with all their versions.
    DestroyDatasets {
        /// Their numbers.
        datasets: Vec<DatasetId>,
    },
    /// A new dataset whose origin is a snapshot.
    Clone {
        /// The snapshot.
        origin: VersionId,
        /// Name of the dataset.
        name: String,
        /// Creation time.
        time: Timestamp,
    },
    /// The head starts anew from a snapshot; the former head becomes a snapshot.
    Rollback {
        /// The dataset.
        dataset: DatasetId,
        /// The snapshot.
        snapshot: VersionId,
        /// Name under which the former head is kept.
        saved: String,
        /// When.
        time: Timestamp,
    },
    /// A clone takes over the history of its origin.
    Promote {
        /// The clone.
        dataset: DatasetId,
    },
    /// Datasets get new names.
    RenameDatasets {
        /// Numbers and names.
        names: Vec<(DatasetId, String)>,
    },
    /// Snapshots get new names.
    RenameSnapshots {
        /// Versions and names.
        names: Vec<(VersionId, String)>,
    },
    /// A hold is put on a snapshot, or taken off.
    Hold {
        /// The snapshot.
        version: VersionId,
        /// Its tag.
        tag: String,
        /// When it was put on; `None` takes it off.
        since: Option<Timestamp>,
    },
    /// A user property changes.
    SetProperty {
        /// What has the property.
        target: Target,
        /// Its name.
        key: String,
        /// Its value; `None` removes it.
        value: Option<String>,
    },
    /// Whole blocks of a file, not side by side in it: the data blocks of the record, in order.
    WriteScattered(Scatter),
    /// Whole blocks of a file that were written ahead outside the log, and get their addresses now.
    MapScattered {
        /// Which of the run's blocks go where in the file.
        scatter: Scatter,
        /// Address of the first block in the data stream.
        address: LogAddress,
        /// Segment that holds the run.
        segment: SegmentId,
        /// Slot of the first block.
        slot: Slot,
    },
    /// Bytes within blocks of a file, here and there.
    Patch(Patch),
}

/// A change to the tree of files of a dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NamespaceOperation {
    /// A new file, directory or device node.
    Create {
        /// Where.
        directory: InodeNumber,
        /// Under which name.
        name: Vec<u8>,
        /// What it is.
        new: NewInode,
    },
    /// A new symbolic link.
    CreateSymlink {
        /// Where.
        directory: InodeNumber,
        /// Under which name.
        name: Vec<u8>,
        /// Where it points.
        target: Vec<u8>,
        /// Its attributes.
        new: NewInode,
    },
    /// One more name for a file.
    Link {
        /// The file.
        inode: InodeNumber,
        /// Where.
        directory: InodeNumber,
        /// Under which name.
        name: Vec<u8>,
        /// When.
        time: Timestamp,
    },
    /// One name less for a file.
    Unlink {
        /// Where.
        directory: InodeNumber,
        /// The name.
        name: Vec<u8>,
        /// When.
        time: Timestamp,
    },
    /// An empty directory goes.
    RemoveDirectory {
        /// Where.
        directory: InodeNumber,
        /// Its name.
        name: Vec<u8>,
        /// When.
        time: Timestamp,
    },
    /// Something gets another name.
    Rename {
        /// Where it is.
        from: InodeNumber,
        /// Its name there.
        from_name: Vec<u8>,
        /// Where it will be.
        to: InodeNumber,
        /// Its name there.
        to_name: Vec<u8>,
        /// What to do about a name that exists.
        how: RenameHow,
        /// When.
        time: Timestamp,
    },
    /// Attributes change.
    SetAttributes {
        /// Of what.
        inode: InodeNumber,
        /// Which, and to what.
        change: AttributeChange,
    },
    /// An extended attribute is set.
    SetXattr {
        /// Of what.
        inode: InodeNumber,
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// What to do about one that exists.
        how: XattrHow,
        /// When.
        time: Timestamp,
    },
    /// An extended attribute goes.
    RemoveXattr {
        /// Of what.
        inode: InodeNumber,
        /// Its name.
        name: Vec<u8>,
        /// When.
        time: Timestamp,
    },
}

/// Whole blocks of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// Where the file is.
    pub dataset: DatasetId,
    /// The file.
    pub inode: InodeNumber,
    /// First block.
    pub block: FileBlock,
    /// Number of blocks.
    pub blocks: u32,
    /// The file ends here or later afterwards, in bytes.
    pub end: u64,
    /// Modification time.
    pub time: Timestamp,
}

/// Whole blocks, side by side in the log or in a run, that go to several places in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scatter {
    /// Where the file is.
    pub dataset: DatasetId,
    /// The file.
    pub inode: InodeNumber,
    /// Number of blocks, those that go nowhere included.
    pub blocks: u32,
    /// The file ends here or later afterwards, in bytes.
    pub end: u64,
    /// Modification time.
    pub time: Timestamp,
    /// What goes where, in the order of the file; no block twice.
    pub parts: Vec<Part>,
}

/// Blocks that are neighbours in the file, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// First of them, counted from the first block of the scatter.
    pub at: u32,
    /// Where it goes.
    pub block: FileBlock,
    /// Number of blocks.
    pub blocks: u32,
}

/// Bytes within blocks of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Patch {
    /// Where the file is.
    pub dataset: DatasetId,
    /// The file.
    pub inode: InodeNumber,
    /// The file ends here or later afterwards, in bytes.
    pub end: u64,
    /// Modification time.
    pub time: Timestamp,
    /// What changes, in the order of the file; no block twice.
    pub blocks: Vec<BlockPatch>,
}

/// Bytes within one block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockPatch {
    /// The block.
    pub block: FileBlock,
    /// In the order of the block, and none over another.
    pub stretches: Stretches,
}

impl Patch {
    /// Whether the blocks are as promised: in order, within what a file can be, their stretches within them.
    pub fn is_valid(&self) -> bool {
        let limit = FILE_BYTES_MAX / BLOCK_BYTES as u64;
        !self.blocks.is_empty()
            && self.end <= FILE_BYTES_MAX
            && self.blocks.windows(2).all(|two| two[0].block < two[1].block)
            && self.blocks.iter().all(|one| {
                let mut end = 0;
                one.block.0 < limit
                    && one.stretches.iter().all(|stretch| {
                        let in_order = usize::from(stretch.at) >= end;
                        end = usize::from(stretch.at) + stretch.bytes.len();
                        in_order && end <= BLOCK_BYTES
                    })
            })
    }
}

impl Scatter {
    /// Blocks of the run that the file has then.
    pub(crate) fn mapped(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.blocks)).sum()
    }

    /// Whether the parts are as promised: within the run and in order. Neither a block of the run nor one of
    /// the file is in two of them.
    pub fn is_valid(&self) -> bool {
        let mut file_end = 0;
        let each_fits = self.parts.iter().all(|part| {
            let end = part.block.0.checked_add(u64::from(part.blocks));
            let in_order = part.blocks > 0 && part.block.0 >= file_end;
            file_end = end.unwrap_or(u64::MAX);
            in_order && end.is_some() && part.end_in_run().is_some_and(|end| end <= self.blocks)
        });
        // Of as many as were read. How many blocks there are to be is what the log says, and may be a lie.
        let mut of_run: Vec<&Part> = self.parts.iter().collect();
        of_run.sort_unstable_by_key(|part| part.at);
        each_fits
            && !self.parts.is_empty()
            && of_run.windows(2).all(|two| two[0].end_in_run().is_some_and(|end| end <= two[1].at))
    }
}

impl Part {
    /// The end of its blocks among those of the scatter; `None` if there is no such number.
    const fn end_in_run(&self) -> Option<u32> {
        self.at.checked_add(self.blocks)
    }
}

/// Something that has user properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Target {
    /// A dataset.
    Dataset(DatasetId),
    /// A snapshot.
    Snapshot(VersionId),
}

impl Operation {
    /// About how many bytes the encoding takes, so that room can be made for it.
    pub fn encoded_about(&self) -> usize {
        match self {
            Self::Patch(patch) => {
                let stretches = patch.blocks.iter().flat_map(|one| one.stretches.iter());
                64 + stretches.map(|stretch| stretch.bytes.len() + 8).sum::<usize>()
            }
            _ => 64,
        }
    }

    /// Appends the encoding.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let bytes = std::mem::take(into);
        *into = postcard::to_extend(self, bytes).expect("operations hold nothing that cannot be encoded");
    }

    /// Reads one operation and what lies behind it; `None` if the bytes hold none.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        postcard::take_from_bytes(bytes).ok()
    }

    /// Reads the operations of a record; `None` if the bytes do not hold so many.
    pub fn decode_all(mut bytes: &[u8], count: u16) -> Option<Vec<Self>> {
        let mut operations = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (operation, rest) = Self::decode(bytes)?;
            operations.push(operation);
            bytes = rest;
        }
        Some(operations)
    }

    /// Where the log goes on, and the use of that segment, if a record says that and nothing else.
    pub(crate) fn switch_of(record: &RecordView) -> Option<(SegmentId, u64)> {
        if record.header.operations != 1 || !record.sums.is_empty() {
            return None;
        }
        match Self::decode(&record.operations)? {
            (Self::Switch { segment, incarnation }, _) => Some((segment, incarnation)),
            _ => None,
        }
    }

    /// How many data blocks of its record the operation takes up.
    pub const fn data_blocks(&self) -> u32 {
        match self {
            Self::Write(write) => write.blocks,
            Self::WriteScattered(scatter) => scatter.blocks,
            _ => 0,
        }
    }
}
