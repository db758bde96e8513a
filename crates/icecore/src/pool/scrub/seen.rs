//! What damage costs: files, places in them, and the versions that see it. Neighbours are reported as one.

use super::super::diff;
use super::Finding;
use super::damage::{Damage, Place};
use super::seers::{Piece, Versions, pieces};
use crate::engine::Engine;
use crate::namespace::TreeReader;
use crate::tree::{Item, Key, Node, Tree};
use crate::units::{BLOCK_BYTES, BlockCount, FileBlock, InodeNumber, LogAddress, Run, Stream};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Findings that are reported one by one.
pub(crate) const FINDINGS_MAX: usize = 1000;

/// A finding, and the first block that it is about.
pub(crate) struct Named {
    pub first: (Stream, LogAddress),
    pub finding: Finding,
}

/// Names what damaged blocks belong to, and who sees it: one walk of a tree for all that its version is the
/// first to see. The entries are in the order of addresses.
pub(crate) fn name(engine: &Engine, list: &[Damage]) -> Vec<Named> {
    if list.is_empty() {
        return Vec::new();
    }
    let (versions, _pin) = {
        let state = engine.state();
        (Versions::of(&state), engine.pin(&state))
    };
    let pieces = pieces(engine, &versions, list);
    let mut of_first: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(first) = versions.first(&piece.seers) {
            of_first.entry(first).or_default().push(index);
        }
    }
    let mut naming = Naming { list, named: vec![0; pieces.len()], pieces: &pieces, drafts: Vec::new() };
    for (first, indices) in of_first {
        naming.walk(engine, versions.tree(first), &indices);
    }
    naming.leftovers();
    let finish = |draft: Draft| {
        let Draft { piece, place, blocks, path, .. } = draft;
        let Piece { run, damage, seers } = &pieces[piece];
        let (names, version_count) = versions.names(seers);
        let (file, hides) = match place {
            What::File { inode, offset } => (Some((inode.0, offset)), None),
            What::Below(keys) => (None, Some(describe(&keys, path.as_deref()))),
            What::Unknown => (None, None),
        };
        let index = draft.first.0 - list[*damage].run.start.0;
        let finding = Finding {
            damage: list[*damage].text(index),
            blocks,
            length: if file.is_some() { blocks * BLOCK_BYTES as u64 } else { 0 },
            path: path.filter(|_| file.is_some()),
            versions: names,
            version_count,
            file,
            hides,
            spare: false,
        };
        Named { first: (run.stream, draft.first), finding }
    };
    naming.drafts.into_iter().map(finish).collect()
}

/// Completes findings about what vouches for blocks: each has what its block has.
pub(super) fn name_one_by_one(engine: &Engine, found: Vec<(Run, Finding)>) -> Vec<Finding> {
    // Each in words of its own, so that none are joined.
    let words = |(index, (run, _)): (usize, &(Run, Finding))| Damage {
        run: *run,
        place: Place::Text(index.to_string()),
    };
    let mut list: Vec<Damage> = found.iter().enumerate().map(words).collect();
    list.sort_by_key(|damage| (damage.run.stream, damage.run.start));
    list.dedup_by_key(|damage| (damage.run.stream, damage.run.start));
    let named: BTreeMap<_, Finding> =
        name(engine, &list).into_iter().map(|named| (named.first, named.finding)).collect();
    let complete = |(run, finding): (Run, Finding)| match named.get(&(run.stream, run.start)) {
        Some(block) => Finding { damage: finding.damage, ..block.clone() },
        None => finding,
    };
    found.into_iter().map(complete).collect()
}

/// A finding in the making.
struct Draft {
    /// The piece with its first block, and that block.
    piece: usize,
    first: LogAddress,
    blocks: u64,
    place: What,
    path: Option<Vec<u8>>,
}

enum What {
    /// Bytes of a file from an offset on.
    File {
        inode: InodeNumber,
        offset: u64,
    },
    /// What is found by keys.
    Below(Range<Key>),
    Unknown,
}

/// Pieces by their first block.
type Wanted = BTreeMap<(Stream, LogAddress), usize>;

struct Naming<'a> {
    list: &'a [Damage],
    pieces: &'a [Piece],
    /// Blocks of each piece of which it is known what they are.
    named: Vec<u64>,
    drafts: Vec<Draft>,
}

impl Naming<'_> {
    fn walk(&mut self, engine: &Engine, tree: &Tree, indices: &[usize]) {
        let wanted: Wanted = indices
            .iter()
            .map(|index| ((self.pieces[*index].run.stream, self.pieces[*index].run.start), *index))
            .collect();
        let before = self.drafts.len();
        let naming = RefCell::new(&mut *self);
        tree.salvage(
            &*engine.nodes,
            &mut |address, content, keys| {
                let mut naming = naming.borrow_mut();
                naming.node(&wanted, address, keys);
                naming.extents(&wanted, content);
                true
            },
            // One that cannot be read is met all the same; what is below it is not.
            &mut |gone| naming.borrow_mut().node(&wanted, gone.address, gone.low..gone.high),
        );
        self.paths(engine, tree, before);
    }

    /// Everything damaged that a leaf refers to.
    fn extents(&mut self, wanted: &Wanted, node: &Node) {
        for (key, item) in node.items() {
            let Item::Extent(extent) = item.to_item() else { continue };
            let run = extent.run;
            let before = wanted.range(..(run.stream, run.end())).rev();
            let of_run = before.take_while(|(_, piece)| {
                let other = self.pieces[**piece].run;
                other.stream == run.stream && other.end() > run.start
            });
            let mut found: Vec<usize> = of_run.map(|(_, piece)| *piece).collect();
            found.reverse();
            for piece in found {
                let other = self.pieces[piece].run;
                let (start, end) = (run.start.max(other.start), run.end().min(other.end()));
                let offset = FileBlock(key.offset()).offset() + (start.0 - run.start.0) * BLOCK_BYTES as u64;
                let part = Run { start, length: BlockCount(end.0 - start.0), ..run };
                self.bytes(piece, part, key.inode(), offset);
            }
        }
    }

    fn bytes(&mut self, piece: usize, part: Run, inode: InodeNumber, offset: u64) {
        self.named[piece] += part.length.0;
        let goes_on = |last: &Draft| match last.place {
            What::File { inode: former, offset: begin } => {
                former == inode && begin + last.blocks * BLOCK_BYTES as u64 == offset
            }
            _ => false,
        };
        if self.joins(piece, goes_on) {
            self.drafts.last_mut().expect("one that it joins").blocks += part.length.0;
        } else {
            self.draft(piece, part.start, part.length.0, What::File { inode, offset });
        }
    }

    fn node(&mut self, wanted: &Wanted, address: LogAddress, keys: Range<Key>) {
        let Some((_, piece)) = wanted.range(..=(Stream::Node, address)).next_back() else { return };
        let (piece, run) = (*piece, self.pieces[*piece].run);
        if run.stream != Stream::Node || address >= run.end() {
            return;
        }
        self.named[piece] += 1;
        let goes_on = |last: &Draft| matches!(&last.place, What::Below(former) if former.end == keys.start);
        if !self.joins(piece, goes_on) {
            return self.draft(piece, address, 1, What::Below(keys));
        }
        let last = self.drafts.last_mut().expect("one that it joins");
        last.blocks += 1;
        if let What::Below(former) = &mut last.place {
            former.end = keys.end;
        }
    }

    /// Whether blocks of a piece are damaged as those of the last finding are, and the same versions see
    /// them.
    fn joins(&self, piece: usize, goes_on: impl Fn(&Draft) -> bool) -> bool {
        let piece = &self.pieces[piece];
        self.drafts.last().is_some_and(|last| {
            let other = &self.pieces[last.piece];
            let is_like = || self.list[piece.damage].is_like(&self.list[other.damage]);
            goes_on(last) && piece.seers == other.seers && is_like()
        })
    }

    fn draft(&mut self, piece: usize, first: LogAddress, blocks: u64, place: What) {
        if self.drafts.len() < FINDINGS_MAX {
            self.drafts.push(Draft { piece, first, blocks, place, path: None });
        }
    }

    /// Blocks that the walks met no reference to: what leads to them cannot be read, or they are gone by now.
    fn leftovers(&mut self) {
        for piece in 0..self.pieces.len() {
            let run = self.pieces[piece].run;
            let rest = run.length.0.saturating_sub(self.named[piece]);
            if rest > 0 {
                self.draft(piece, run.start, rest, What::Unknown);
            }
        }
    }

    /// Finds paths for findings from an index on.
    fn paths(&mut self, engine: &Engine, tree: &Tree, from: usize) {
        let inode = |draft: &Draft| match &draft.place {
            What::File { inode, .. } => Some(*inode),
            What::Below(keys) => single(keys),
            What::Unknown => None,
        };
        let wanted: BTreeSet<InodeNumber> = self.drafts[from..].iter().filter_map(inode).collect();
        if wanted.is_empty() {
            return;
        }
        let mut paths = BTreeMap::new();
        // A damaged node on the way only means that some are not named.
        let _ = diff::walk(&TreeReader::new(tree, &*engine.nodes), &mut |inode, path| {
            if wanted.contains(&inode) {
                paths.entry(inode).or_insert(path);
            }
            paths.len() < wanted.len()
        });
        for draft in &mut self.drafts[from..] {
            draft.path = inode(draft).and_then(|inode| paths.get(&inode).cloned());
        }
    }
}

/// The only file that keys are about.
fn single(keys: &Range<Key>) -> Option<InodeNumber> {
    let inode = keys.start.inode();
    (keys.end != Key::MAX && keys.end.inode() == inode && inode.0 != 0).then_some(inode)
}

/// What a range of keys stands for, in words. `path`: that of its only file, where it is known.
pub(crate) fn describe(keys: &Range<Key>, path: Option<&[u8]>) -> String {
    let (low, high) = (keys.start, keys.end);
    let extents = |key: Key| key.kind() == Some(crate::tree::ItemKind::Extent);
    if low == Key::MIN && high == Key::MAX {
        return "everything in it".to_owned();
    }
    if high == Key::MAX {
        return format!("part of the file with inode {}, and all with higher numbers", low.inode());
    }
    if low.inode() != high.inode() {
        return format!("files with inodes {} to {}, or parts of them", low.inode(), high.inode());
    }
    let of_bytes = extents(low) && extents(high);
    let file = match path {
        Some(path) => format!("{} (inode {})", shown(path), low.inode()),
        None if of_bytes => format!("the file with inode {}", low.inode()),
        None => format!("the file or directory with inode {}", low.inode()),
    };
    if of_bytes {
        let bytes = |key: Key| FileBlock(key.offset()).offset();
        return format!("bytes {} to {} of {file}", bytes(low), bytes(high));
    }
    format!("part of {file}")
}

/// A path within a sentence.
pub(crate) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// One block as a run.
pub(super) const fn one(stream: Stream, address: LogAddress) -> Run {
    Run { stream, start: address, length: BlockCount(1) }
}
