//! A whole pool whose ledger, chunks, nodes and headers are not what was written, though all checksums fit: what passes
//! its checksums may still contradict the rest.

use icecore::check::{RepairOptions, repair};
use icecore::format::crc32c;
use icecore::format::ledger::{Blob, SectionTag};
use icecore::format::superblock::{LedgerPointer, NAMES, Superblock};
use icecore::inside::{DecodeLimits, HistoryChanges, MapChanges};
use icecore::units::{BLOCK_BYTES, InodeNumber, LOG_ADDRESS_LIMIT, LogAddress, Marks};
use icecore::{ListFilter, OpenOptions, Pool, View};
use icecore_sim::{DiskConfig, SimulatedDisk};

#[allow(dead_code, reason = "golden pools are only read here")]
#[path = "../../crates/icecore/tests/support/sparse.rs"]
pub mod sparse;

/// Changes that are made to one pool.
const EDITS_MAX: usize = 8;
/// Files and directories that are looked at in a version: a tree may have been made to have any number.
const FILES_MAX: usize = 50;
/// Bytes of a file that are read.
const BYTES_MAX: usize = 64 << 10;
/// What is changed: a section of the ledger, or
const SECTIONS: usize = 6;
/// a chunk, a node, or the header of a segment, a record or a run.
const KINDS: usize = SECTIONS + 3;

/// A pool that was closed, whose map and sets lie in chunks.
struct Golden {
    disk: SimulatedDisk,
    superblock: Superblock,
    blob: Blob,
    chunks: Vec<(LedgerPointer, Vec<u8>)>,
    nodes: Vec<Block>,
    /// Headers of segments, records and runs.
    headers: Vec<Block>,
}

/// A block of a file.
struct Block {
    file: String,
    offset: u64,
    bytes: Vec<u8>,
}

/// Bytes that take the place of others, somewhere.
struct Edit<'a> {
    what: usize,
    at: usize,
    removed: usize,
    bytes: &'a [u8],
}

impl<'a> Edit<'a> {
    /// What is changed, where, how much goes, and how many bytes come.
    fn take(data: &mut &'a [u8]) -> Option<Self> {
        let (&[what, low, high, removed, length], rest) = data.split_first_chunk::<5>()?;
        let (bytes, rest) = rest.split_at(rest.len().min(length.into()));
        *data = rest;
        let at = usize::from(u16::from_le_bytes([low, high]));
        Some(Self { what: what.into(), at, removed: removed.into(), bytes })
    }

    fn splice(&self, into: &mut Vec<u8>) {
        let at = self.at % (into.len() + 1);
        let end = (at + self.removed).min(into.len());
        into.splice(at..end, self.bytes.iter().copied());
    }

    /// The same length as before.
    fn overwrite(&self, into: &mut [u8]) {
        let at = self.at % into.len();
        into[at..].iter_mut().zip(self.bytes).for_each(|(byte, with)| *byte = *with);
    }

    /// Overwrites bytes of a block that has its checksum at `crc_at`: of all of it but that, or with that zero.
    fn put(&self, disk: &SimulatedDisk, block: &Block, crc_at: usize) {
        let mut bytes = block.bytes.clone();
        self.overwrite(&mut bytes);
        bytes[crc_at..crc_at + 4].fill(0);
        let end = if crc_at + 4 == bytes.len() { crc_at } else { bytes.len() };
        let crc = crc32c(&bytes[..end]);
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        disk.overwrite(&block.file, block.offset, &bytes).expect("a block");
    }
}

thread_local! {
    static GOLDEN: Golden = Golden::new();
}

/// Edits, one behind the other; then the pool is checked, a repair tried, and the pool opened and read. Whatever is
/// found, nothing panics but replay, which a check looks after.
pub fn pool(data: &[u8]) {
    let disk = GOLDEN.with(|golden| golden.edited(data));
    let options = RepairOptions { dry_run: true, ..RepairOptions::default() };
    let Ok(report) = repair(disk.storage(), &options, &mut |_| ()) else { return };
    if report.before.opened {
        read(&disk);
    }
}

/// Reads what the pool has, as far as it can be read.
fn read(disk: &SimulatedDisk) {
    let options = OpenOptions {
        background: false,
        control_socket: false,
        read_only: true,
        map_memory_bytes: 0,
        ..OpenOptions::default()
    };
    let Ok(pool) = Pool::open(disk.storage(), &options) else { return };
    let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    let Ok(listed) = pool.list(&filter) else { return };
    for entry in listed {
        let _ = (pool.properties(&entry.name), pool.holds(&entry.name));
        if let Ok(view) = pool.view(&entry.name) {
            read_version(&view);
        }
    }
}

fn read_version(view: &View) {
    let mut waiting = vec![InodeNumber::ROOT];
    for _ in 0..FILES_MAX {
        let Some(inode) = waiting.pop() else { return };
        let Ok(item) = view.attributes(inode) else { continue };
        for name in view.list_xattrs(inode).unwrap_or_default() {
            let _ = view.xattr(inode, &name);
        }
        let mut bytes = vec![0; (item.size as usize).min(BYTES_MAX)];
        let _ = (view.read_link(inode), view.read(inode, 0, &mut bytes), view.data_ranges(inode));
        let entries = view.read_directory(inode, 0, FILES_MAX).unwrap_or_default();
        waiting.extend(entries.into_iter().map(|entry| entry.inode));
    }
}

fn limits() -> DecodeLimits {
    DecodeLimits::new(Marks([LogAddress(LOG_ADDRESS_LIMIT); 3]))
}

fn decoded(blob: &Blob) -> (HistoryChanges, MapChanges) {
    let section = |tag| blob.section(tag, "the ledger").expect("every blob has it");
    let history = HistoryChanges::decode(section(SectionTag::History), &mut limits());
    let map = MapChanges::decode(section(SectionTag::Location), &mut limits());
    (history.expect("as it was written"), map.expect("as it was written"))
}

fn segment_name(pointer: &LedgerPointer) -> String {
    icecore::format::segment::file_name(pointer.segment)
}

fn bytes_at(disk: &SimulatedDisk, pointer: &LedgerPointer) -> Vec<u8> {
    let bytes = disk.contents(&segment_name(pointer)).expect("the segment");
    let begin = pointer.slot.0 as usize * BLOCK_BYTES;
    bytes[begin..begin + pointer.blocks as usize * BLOCK_BYTES].to_vec()
}

/// What the ledger says in one blob: in this pool nothing changed after the last picture of everything.
fn everything(disk: &SimulatedDisk, superblock: &Superblock) -> Blob {
    let read = |pointer: &LedgerPointer| {
        Blob::decode(&bytes_at(disk, pointer), superblock.pool, "place").expect("a blob")
    };
    let newest = read(&superblock.ledger);
    let mut full = newest.clone();
    while let Some(base) = full.base {
        full = read(&base);
    }
    let of_newest = |tag| matches!(tag, SectionTag::Position | SectionTag::Placed);
    let kept = full.sections.into_iter().filter(|(tag, _)| !of_newest(*tag));
    let sections = newest.sections.iter().filter(|(tag, _)| of_newest(*tag)).cloned().chain(kept).collect();
    Blob { base: None, sections, ..newest }
}

/// Blocks of segments that begin so.
fn blocks(disk: &SimulatedDisk, magics: &[&[u8]]) -> Vec<Block> {
    let mut found = Vec::new();
    for (file, _) in disk.files().into_iter().filter(|(name, _)| name.starts_with("segment.")) {
        let contents = disk.contents(&file).expect("a segment");
        for (index, block) in contents.chunks_exact(BLOCK_BYTES).enumerate() {
            if magics.iter().any(|magic| block.starts_with(magic)) {
                let offset = (index * BLOCK_BYTES) as u64;
                found.push(Block { file: file.clone(), offset, bytes: block.to_vec() });
            }
        }
    }
    found
}

/// Writes chunks, and lets the ledger say that they are right.
fn put_chunks(disk: &SimulatedDisk, chunks: &[(LedgerPointer, Vec<u8>)], blob: &mut Blob) {
    let (mut history, mut map) = decoded(blob);
    for (place, bytes) in chunks {
        let offset = u64::from(place.slot.0) * BLOCK_BYTES as u64;
        disk.overwrite(&segment_name(place), offset, bytes).expect("a chunk");
        let of_sets = history.versions.iter_mut().flat_map(|version| version.rows.iter_mut().flatten());
        let of_map = map.chunks.iter_mut().flatten();
        for found in of_sets.map(|row| &mut row.place).chain(of_map.map(|row| &mut row.place)) {
            if (found.segment, found.slot) == (place.segment, place.slot) {
                found.crc = crc32c(bytes);
            }
        }
    }
    for (tag, section) in &mut blob.sections {
        match tag {
            SectionTag::History => *section = history.encode(),
            SectionTag::Location => *section = map.encode(),
            _ => {}
        }
    }
}

impl Golden {
    fn new() -> Self {
        let disk = SimulatedDisk::new(1, DiskConfig { capacity: 64 << 20, ..DiskConfig::default() });
        let storage = disk.storage();
        for (name, bytes) in sparse::files(include_str!("../../crates/icecore/tests/golden/listed.txt")) {
            drop(storage.create(&name, bytes.len() as u64).expect("a file"));
            for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
                if block.iter().any(|byte| *byte != 0) {
                    disk.overwrite(&name, (index * BLOCK_BYTES) as u64, block).expect("a block");
                }
            }
        }
        let superblock = disk.contents(NAMES[0]).expect("a superblock");
        let superblock = Superblock::decode(&superblock, "pool", "place").expect("a superblock");
        let blob = everything(&disk, &superblock);
        let (history, map) = decoded(&blob);
        let of_map = map.chunks.iter().flatten().map(|row| row.place);
        let mut places: Vec<LedgerPointer> = history.rows().map(|row| row.place).chain(of_map).collect();
        places.sort_unstable_by_key(|place| (place.segment, place.slot));
        places.dedup();
        let chunks = places.into_iter().map(|place| (place, bytes_at(&disk, &place))).collect();
        let (nodes, headers) = (blocks(&disk, &[b"IcTn"]), blocks(&disk, &[b"ICESEGM\n", b"ICERECD\n"]));
        let golden = Self { disk, superblock, blob, chunks, nodes, headers };
        assert!(golden.chunks.len() >= 2 && golden.nodes.len() >= 4 && golden.headers.len() >= 4);
        golden
    }

    /// The pool with these changes, on a disk of its own.
    fn edited(&self, mut data: &[u8]) -> SimulatedDisk {
        let disk = self.disk.duplicate(1);
        let mut chunks = self.chunks.clone();
        let mut of_sections = Vec::new();
        for _ in 0..EDITS_MAX {
            let Some(edit) = Edit::take(&mut data) else { break };
            let (kind, index) = (edit.what % KINDS, edit.what / KINDS);
            match kind {
                section if section < SECTIONS => of_sections.push((section, edit)),
                6 => {
                    let index = index % chunks.len();
                    edit.overwrite(&mut chunks[index].1);
                }
                7 => edit.put(&disk, &self.nodes[index % self.nodes.len()], 4),
                _ => edit.put(&disk, &self.headers[index % self.headers.len()], BLOCK_BYTES - 4),
            }
        }
        let mut blob = self.blob.clone();
        put_chunks(&disk, &chunks, &mut blob);
        for (section, edit) in of_sections {
            edit.splice(&mut blob.sections[section].1);
        }
        self.put_ledger(&disk, &blob);
        disk
    }

    /// Writes the newest blob where it was, and superblocks that lead to it.
    fn put_ledger(&self, disk: &SimulatedDisk, blob: &Blob) {
        let bytes = blob.encode(self.superblock.pool);
        let mut superblock = self.superblock.clone();
        superblock.ledger.blocks = (bytes.len() / BLOCK_BYTES) as u32;
        superblock.ledger.crc = crc32c(&bytes);
        let offset = u64::from(superblock.ledger.slot.0) * BLOCK_BYTES as u64;
        let room = self.superblock.segment_bytes - offset;
        let length = bytes.len().min(room as usize);
        disk.overwrite(&segment_name(&superblock.ledger), offset, &bytes[..length]).expect("a blob");
        for name in NAMES {
            disk.overwrite(name, 0, &superblock.encode()).expect("a superblock");
        }
    }
}
