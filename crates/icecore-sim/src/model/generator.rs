//! Draws histories: mostly steps that make sense in the present state, and some that do not.

use super::content::Data;
use super::pool::ModelPool;
use super::step::{FileChange, GroupWrite, Step};
use super::tree::{Body, Tree};
use crate::random::Random;
use icecore::names::DestroyTarget;
use icecore::units::FILE_BYTES_MAX;

/// How often each kind of step comes, in relation to the others, and how large things get.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Writes into files.
    pub write: u64,
    /// Changes of size.
    pub truncate: u64,
    /// Holes.
    pub punch: u64,
    /// New files, directories and symbolic links.
    pub create: u64,
    /// Second names of files.
    pub link: u64,
    /// Removals of files and directories.
    pub remove: u64,
    /// Renamings of files and directories.
    pub rename_file: u64,
    /// Changes of modes and extended attributes.
    pub attributes: u64,
    /// Atomic groups.
    pub group: u64,
    /// Flushes.
    pub sync: u64,
    /// Checkpoints.
    pub checkpoint: u64,
    /// Collections.
    pub collect: u64,
    /// Closing and opening again.
    pub reopen: u64,
    /// New datasets.
    pub create_dataset: u64,
    /// Snapshots, some of them recursive.
    pub snapshot: u64,
    /// Clones.
    pub clone: u64,
    /// Rollbacks.
    pub rollback: u64,
    /// Promotions.
    pub promote: u64,
    /// Renamings of datasets and snapshots.
    pub rename: u64,
    /// Destruction of snapshots and ranges of them.
    pub destroy_snapshot: u64,
    /// Destruction of datasets.
    pub destroy_dataset: u64,
    /// Holds put on and taken off.
    pub hold: u64,
    /// How many names and paths of a hundred are wrong on purpose.
    pub wrong_percent: u64,
    /// Most bytes of one write (at most 1 MiB: longer ones are not atomic).
    pub write_bytes_max: u32,
    /// Where writes usually begin at the latest.
    pub offset_max: u64,
    /// How many writes of a hundred begin anywhere in the largest possible file.
    pub far_percent: u64,
    /// No more datasets are made when there are so many.
    pub datasets_max: usize,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            write: 40,
            truncate: 4,
            punch: 4,
            create: 12,
            link: 2,
            remove: 5,
            rename_file: 4,
            attributes: 3,
            group: 5,
            sync: 6,
            checkpoint: 2,
            collect: 2,
            reopen: 1,
            create_dataset: 2,
            snapshot: 8,
            clone: 2,
            rollback: 2,
            promote: 2,
            rename: 2,
            destroy_snapshot: 5,
            destroy_dataset: 1,
            hold: 2,
            wrong_percent: 2,
            write_bytes_max: 1 << 16,
            offset_max: 1 << 19,
            far_percent: 2,
            datasets_max: 6,
        }
    }
}

/// Draws a step of one kind, if one is possible now.
type Draw = fn(&mut Generator, &ModelPool) -> Option<Step>;

/// A source of steps.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    weights: Weights,
    /// Makes names that were never used before.
    fresh: u64,
}

impl Generator {
    /// The histories of this seed.
    #[must_use]
    pub const fn new(seed: u64, weights: Weights) -> Self {
        Self { random: Random::new(seed), weights, fresh: 0 }
    }

    /// Another mixture from now on.
    pub fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
    }

    /// Begins anew from a seed and a mixture; names stay fresh.
    pub fn redraw(&mut self, seed: u64, weights: Weights) {
        self.random = Random::new(seed);
        self.weights = weights;
    }

    /// Draws the next step, to be done in the state given.
    pub fn next(&mut self, pool: &ModelPool) -> Step {
        if !pool.datasets().is_empty() {
            // What was drawn may be impossible now; something else will be possible.
            for _ in 0..32 {
                if let Some(step) = self.draw(pool) {
                    return step;
                }
            }
        }
        Step::CreateDataset { name: self.fresh_name("d"), parents: false }
    }

    fn draw(&mut self, pool: &ModelPool) -> Option<Step> {
        let weights = self.weights.clone();
        let draws: [(u64, Draw); 22] = [
            (weights.write, |own, pool| own.change(pool, Self::write)),
            (weights.truncate, |own, pool| own.change(pool, Self::truncate)),
            (weights.punch, |own, pool| own.change(pool, Self::punch)),
            (weights.create, |own, pool| own.change(pool, Self::create)),
            (weights.link, |own, pool| own.change(pool, Self::link)),
            (weights.remove, |own, pool| own.change(pool, Self::remove)),
            (weights.rename_file, |own, pool| own.change(pool, Self::rename_file)),
            (weights.attributes, |own, pool| own.change(pool, Self::attributes)),
            (weights.group, Self::group),
            (weights.sync, |_, _| Some(Step::Sync)),
            (weights.checkpoint, |_, _| Some(Step::Checkpoint)),
            (weights.collect, |own, _| {
                let (segments, checkpoint) = (own.random.index(4) + 1, own.random.chance(50));
                Some(Step::Collect { segments, checkpoint })
            }),
            (weights.reopen, |_, _| Some(Step::Reopen)),
            (weights.create_dataset, Self::create_dataset),
            (weights.snapshot, Self::snapshot),
            (weights.clone, Self::clone_snapshot),
            (weights.rollback, |own, pool| Some(Step::Rollback { snapshot: own.a_snapshot(pool)? })),
            (weights.promote, |own, pool| Some(Step::Promote { dataset: own.a_dataset(pool)? })),
            (weights.rename, Self::rename),
            (weights.destroy_snapshot, Self::destroy_snapshot),
            (weights.destroy_dataset, Self::destroy_dataset),
            (weights.hold, Self::hold),
        ];
        let total = draws.iter().map(|(weight, _)| weight).sum::<u64>();
        let mut left = self.random.below(total.max(1));
        let chosen = draws.iter().find(|(weight, _)| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        chosen.and_then(|(_, draw)| draw(self, pool))
    }

    // ---- names

    fn is_wrong(&mut self) -> bool {
        self.random.chance(self.weights.wrong_percent)
    }

    fn fresh_name(&mut self, prefix: &str) -> String {
        self.fresh += 1;
        format!("{prefix}{}", self.fresh)
    }

    fn a_dataset(&mut self, pool: &ModelPool) -> Option<String> {
        if self.is_wrong() {
            let wrong = ["", "missing", "d1/missing", "d1@s", "a b", "/d1", "d1/", ".."];
            return self.random.pick(&wrong).map(|name| (*name).to_owned());
        }
        let names: Vec<_> = pool.datasets().keys().collect();
        self.random.pick(&names).map(|name| (*name).clone())
    }

    fn a_snapshot(&mut self, pool: &ModelPool) -> Option<String> {
        if self.is_wrong() {
            let wrong = ["", "d1", "d1@missing", "missing@s", "d1@", "@s", "d1@a%b", "d1@a@b", "d1@a/b"];
            return self.random.pick(&wrong).map(|name| (*name).to_owned());
        }
        let names: Vec<_> = pool.named_snapshots().map(|(name, _)| name).collect();
        self.random.pick(&names).cloned()
    }

    fn a_new_dataset(&mut self, pool: &ModelPool) -> Option<String> {
        let name = self.fresh_name("d");
        match self.random.below(10) {
            0..6 => Some(name),
            6..9 => self.a_dataset(pool).map(|parent| format!("{parent}/{name}")),
            _ => self.a_dataset(pool),
        }
    }

    /// The path of something that the predicate likes.
    fn a_path(&mut self, tree: &Tree, likes: fn(&Body) -> bool) -> Option<String> {
        if self.is_wrong() {
            return self.random.pick(&tree.paths()).map(|(path, _)| format!("{path}/none"));
        }
        let likes = |number: u64| tree.inode(number).is_some_and(|inode| likes(&inode.body));
        let paths: Vec<_> = tree.paths().into_iter().filter(|(_, number)| likes(*number)).collect();
        self.random.pick(&paths).map(|(path, _)| path.clone())
    }

    fn a_file(&mut self, tree: &Tree) -> Option<String> {
        let any = self.is_wrong();
        self.a_path(tree, if any { |_| true } else { |body| matches!(body, Body::File(_)) })
    }

    /// A path in a directory that exists. Few names, so that they meet.
    fn a_place(&mut self, tree: &Tree) -> Option<String> {
        let directory = self.a_path(tree, |body| matches!(body, Body::Directory(_)))?;
        let name = match self.random.below(40) {
            0 => "n".repeat(255),
            1 => "n".repeat(256),
            2 => "Grüße, 世界\n".to_owned(),
            number => format!("n{}", number % 16),
        };
        Some(if directory.is_empty() { name } else { format!("{directory}/{name}") })
    }

    // ---- files

    fn change(&mut self, pool: &ModelPool, draw: fn(&mut Self, &Tree) -> Option<FileChange>) -> Option<Step> {
        let dataset = self.a_dataset(pool)?;
        let empty = Tree::default();
        let tree = pool.datasets().get(&dataset).map_or(&empty, |dataset| &*dataset.head);
        Some(Step::Change { change: draw(self, tree)?, dataset })
    }

    fn data(&mut self) -> Data {
        let max = u64::from(self.weights.write_bytes_max);
        // Small ones travel in record headers, whole blocks and odd lengths take other ways.
        let length = match self.random.below(4) {
            0 => self.random.between(1, 600),
            1 => self.random.between(1, max.div_ceil(4096)) * 4096,
            _ => self.random.between(1, max),
        };
        let seed = if self.random.chance(5) { 0 } else { self.random.next() };
        Data { seed, length: length.min(max) as u32 }
    }

    fn offset(&mut self) -> u64 {
        if self.random.chance(self.weights.far_percent) {
            return self.random.below(FILE_BYTES_MAX);
        }
        let offset = self.random.below(self.weights.offset_max + 1);
        match self.random.below(3) {
            0 => offset,
            1 => offset & !511,
            _ => offset & !4095,
        }
    }

    fn write(&mut self, tree: &Tree) -> Option<FileChange> {
        Some(FileChange::Write { path: self.a_file(tree)?, offset: self.offset(), data: self.data() })
    }

    fn truncate(&mut self, tree: &Tree) -> Option<FileChange> {
        let size = if self.random.chance(20) { 0 } else { self.offset() };
        Some(FileChange::Truncate { path: self.a_file(tree)?, size })
    }

    fn punch(&mut self, tree: &Tree) -> Option<FileChange> {
        let length = self.random.between(1, self.weights.offset_max + 1);
        Some(FileChange::Punch { path: self.a_file(tree)?, offset: self.offset(), length })
    }

    fn create(&mut self, tree: &Tree) -> Option<FileChange> {
        let path = self.a_place(tree)?;
        let mode = [0o644, 0o600, 0o755, 0o4711][self.random.index(4)];
        Some(match self.random.below(10) {
            0 => FileChange::CreateSymlink { path, target: self.fresh_name("to/") },
            1..3 => FileChange::CreateDirectory { path, mode },
            _ => FileChange::CreateFile { path, mode },
        })
    }

    fn link(&mut self, tree: &Tree) -> Option<FileChange> {
        Some(FileChange::Link { path: self.a_file(tree)?, to: self.a_place(tree)? })
    }

    fn remove(&mut self, tree: &Tree) -> Option<FileChange> {
        let path = self.a_path(tree, |_| true).filter(|path| !path.is_empty())?;
        let is_directory = tree.resolve(&path).ok().and_then(|number| tree.inode(number));
        let is_directory = is_directory.is_some_and(|inode| matches!(inode.body, Body::Directory(_)));
        Some(if is_directory != self.is_wrong() {
            FileChange::RemoveDirectory { path }
        } else {
            FileChange::Unlink { path }
        })
    }

    fn rename_file(&mut self, tree: &Tree) -> Option<FileChange> {
        let from = self.a_path(tree, |_| true).filter(|path| !path.is_empty())?;
        let over = self.random.chance(30);
        let to = if over { self.a_path(tree, |_| true) } else { self.a_place(tree) };
        Some(FileChange::Rename { from, to: to.filter(|path| !path.is_empty())? })
    }

    fn attributes(&mut self, tree: &Tree) -> Option<FileChange> {
        let path = self.a_path(tree, |body| !matches!(body, Body::Symlink(_)))?;
        let name = format!("user.{}", self.random.below(4));
        let value = Data { seed: self.random.next(), length: self.random.below(300) as u32 };
        Some(match self.random.below(4) {
            0 => FileChange::SetMode { path, mode: self.random.below(0o1000) as u32 },
            1 => {
                let inode = tree.resolve(&path).ok().and_then(|number| tree.inode(number));
                let there = inode.and_then(|inode| inode.attributes.keys().next().cloned());
                FileChange::RemoveAttribute { path, name: there.unwrap_or(name) }
            }
            _ => FileChange::SetAttribute { path, name, value },
        })
    }

    fn group(&mut self, pool: &ModelPool) -> Option<Step> {
        let mut writes = Vec::new();
        for _ in 0..self.random.between(1, 8) {
            let draw = if self.random.chance(85) { Self::write } else { Self::truncate };
            let Step::Change { dataset, change } = self.change(pool, draw)? else { continue };
            let write = match change {
                FileChange::Write { path, offset, data } => GroupWrite::Write { path, offset, data },
                FileChange::Truncate { path, size } => GroupWrite::Truncate { path, size },
                _ => continue,
            };
            writes.push((dataset, write));
        }
        Some(Step::Group { writes, durable: self.random.chance(50) })
    }

    // ---- administration

    fn create_dataset(&mut self, pool: &ModelPool) -> Option<Step> {
        if pool.datasets().len() >= self.weights.datasets_max {
            return None;
        }
        let mut name = self.a_new_dataset(pool)?;
        let parents = self.random.chance(20);
        if parents {
            name = format!("{name}/{}", self.fresh_name("d"));
        }
        Some(Step::CreateDataset { name, parents })
    }

    fn snapshot(&mut self, pool: &ModelPool) -> Option<Step> {
        let count = if self.random.chance(80) { 1 } else { self.random.between(2, 3) };
        let mut names = Vec::new();
        for _ in 0..count {
            let short = self.fresh_name("s");
            let dataset = self.a_dataset(pool)?;
            let taken = if self.is_wrong() { self.a_snapshot(pool) } else { None };
            names.push(taken.unwrap_or_else(|| format!("{dataset}@{short}")));
        }
        Some(Step::Snapshot { names, recursive: self.random.chance(25) })
    }

    fn clone_snapshot(&mut self, pool: &ModelPool) -> Option<Step> {
        if pool.datasets().len() >= self.weights.datasets_max {
            return None;
        }
        Some(Step::Clone { snapshot: self.a_snapshot(pool)?, target: self.a_new_dataset(pool)? })
    }

    fn rename(&mut self, pool: &ModelPool) -> Option<Step> {
        let recursive = self.random.chance(20);
        if self.random.chance(50) {
            return Some(Step::Rename {
                from: self.a_dataset(pool)?,
                to: self.a_new_dataset(pool)?,
                recursive: false,
            });
        }
        let from = self.a_snapshot(pool)?;
        let dataset = from.split('@').next().unwrap_or_default().to_owned();
        Some(Step::Rename { to: format!("{dataset}@{}", self.fresh_name("s")), from, recursive })
    }

    fn destroy_snapshot(&mut self, pool: &ModelPool) -> Option<Step> {
        let name = self.a_snapshot(pool)?;
        let Some((dataset, first)) = name.split_once('@').filter(|_| self.random.chance(30)) else {
            return Some(Step::Destroy(DestroyTarget::Snapshot(name)));
        };
        let others: Vec<_> = pool.snapshots_of(dataset).filter_map(|(_, one)| one.short.clone()).collect();
        let last = self.random.pick(&others)?.clone();
        Some(Step::Destroy(DestroyTarget::Range {
            dataset: dataset.to_owned(),
            first: first.to_owned(),
            last,
        }))
    }

    fn destroy_dataset(&mut self, pool: &ModelPool) -> Option<Step> {
        let name = self.a_dataset(pool)?;
        Some(Step::Destroy(DestroyTarget::Dataset { name, recursive: self.random.chance(70) }))
    }

    fn hold(&mut self, pool: &ModelPool) -> Option<Step> {
        let held: Vec<_> = pool.named_snapshots().filter(|(_, one)| !one.holds.is_empty()).collect();
        // Holds are taken off more often than put on, or soon nothing could be destroyed.
        if let Some((name, one)) = self.random.pick(&held)
            && self.random.chance(60)
        {
            let tag = one.holds.first().cloned()?;
            return Some(Step::Release { tag, snapshot: name.clone() });
        }
        let tag = format!("t{}", self.random.below(2));
        let snapshot = self.a_snapshot(pool)?;
        Some(if self.is_wrong() { Step::Release { tag, snapshot } } else { Step::Hold { tag, snapshot } })
    }
}
