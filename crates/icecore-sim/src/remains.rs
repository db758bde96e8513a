//! What can still be read of a damaged pool, block by block: a lost block must not hide what is wrong with
//! the next.

use crate::driver::Difference;
use crate::model::{Body, Content, ModelPool, Tree};
use icecore::units::InodeNumber;
use icecore::{Error, ListFilter, Pool, Result, View};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const BLOCK: usize = 4096;
/// Blocks that are read in one call as long as none of them is lost.
const TOGETHER: u64 = 64;

/// What of a pool cannot be read for damage, where all else is as a model says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Remains {
    /// Version, path, and what of it: the offset of a block, or the name of a part.
    pub lost: BTreeSet<(String, String, String)>,
    /// Blocks of files that can be read.
    pub blocks: u64,
}

impl Remains {
    /// Compares what a pool shows with a model.
    ///
    /// # Errors
    /// The first difference in what can be read; any other error than damage is one, too.
    pub fn of(pool: &Pool, model: &ModelPool) -> std::result::Result<Self, Difference> {
        let trees = trees(model);
        let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        let entries = pool.list(&filter).map_err(|error| failed("the pool", &error))?;
        let names: BTreeSet<&String> = entries.iter().map(|entry| &entry.name).collect();
        if names.len() != trees.len() || trees.keys().any(|name| !names.contains(name)) {
            return Err(differ("the pool", format!("has {names:?} instead of {:?}", trees.keys())));
        }
        let mut remains = Self::default();
        for (name, tree) in trees {
            match pool.view(&name) {
                Ok(view) => Reading { name: &name, view, tree, remains: &mut remains }.all()?,
                Err(Error::Damaged { .. }) => remains.lose(&name, "", "all of it"),
                Err(error) => return Err(failed(&name, &error)),
            }
        }
        Ok(remains)
    }

    /// Versions of which something is lost.
    #[must_use]
    pub fn versions(&self) -> BTreeSet<&str> {
        self.lost.iter().map(|(version, ..)| version.as_str()).collect()
    }

    fn lose(&mut self, version: &str, path: &str, what: impl Into<String>) {
        self.lost.insert((version.to_owned(), path.to_owned(), what.into()));
    }
}

fn trees(model: &ModelPool) -> BTreeMap<String, &Tree> {
    let heads = model.datasets().iter().map(|(name, dataset)| (name.clone(), &*dataset.head));
    heads.chain(model.named_snapshots().map(|(name, snapshot)| (name, &*snapshot.tree))).collect()
}

fn differ(place: impl Into<String>, detail: impl Into<String>) -> Difference {
    Difference { place: place.into(), detail: detail.into() }
}

fn failed(place: &str, error: &Error) -> Difference {
    differ(place, format!("cannot be read: {error}"))
}

/// One version that is compared.
struct Reading<'a> {
    name: &'a str,
    view: View,
    tree: &'a Tree,
    remains: &'a mut Remains,
}

type Compared<T = ()> = std::result::Result<T, Difference>;

impl Reading<'_> {
    fn all(&mut self) -> Compared {
        let paths = self.tree.paths();
        let mut children: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, _) in paths.iter().filter(|(path, _)| !path.is_empty()) {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            children.entry(directory).or_default().insert(name);
        }
        for (path, number) in &paths {
            let view = self.view.clone();
            match self.or_lost(path, "its name", view.resolve(path.as_bytes()))? {
                Some(Some(inode)) => {
                    self.inode(path, *number, inode, children.get(path.as_str()))?;
                }
                Some(None) => return Err(differ(self.place(path), "is missing")),
                None => {}
            }
        }
        Ok(())
    }

    fn place(&self, path: &str) -> String {
        format!("{}, {path:?}", self.name)
    }

    /// What was read, or nothing if it is lost.
    fn or_lost<T>(&mut self, path: &str, what: &str, read: Result<T>) -> Compared<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Error::Damaged { .. }) => {
                self.remains.lose(self.name, path, what);
                Ok(None)
            }
            Err(error) => Err(failed(&self.place(path), &error)),
        }
    }

    fn inode(
        &mut self,
        path: &str,
        number: u64,
        inode: InodeNumber,
        children: Option<&BTreeSet<&str>>,
    ) -> Compared {
        let (view, Some(expected)) = (self.view.clone(), self.tree.inode(number)) else { return Ok(()) };
        if let Some(item) = self.or_lost(path, "its attributes", view.attributes(inode))? {
            let links = self.tree.links(number);
            if (u32::from(item.mode), u64::from(item.links)) != (expected.mode, links) {
                return Err(differ(self.place(path), format!("has {item:?} instead of {expected:?}")));
            }
            if let Body::File(content) = &expected.body
                && content.size() != item.size
            {
                let detail = format!("has {} bytes instead of {}", item.size, content.size());
                return Err(differ(self.place(path), detail));
            }
        }
        let read =
            |name: &Vec<u8>| Ok((String::from_utf8_lossy(name).into_owned(), view.xattr(inode, name)?));
        let names = view.list_xattrs(inode);
        let attributes = names.and_then(|names| names.iter().map(read).collect::<Result<BTreeMap<_, _>>>());
        if let Some(found) = self.or_lost(path, "extended attributes", attributes)?
            && found != expected.attributes
        {
            return Err(differ(self.place(path), "has other extended attributes"));
        }
        match &expected.body {
            Body::Directory(_) => self.directory(path, inode, children),
            Body::Symlink(target) => {
                let found = self.or_lost(path, "where it leads", view.read_link(inode))?;
                if found.is_some_and(|found| found != target.as_bytes()) {
                    return Err(differ(self.place(path), "leads elsewhere"));
                }
                Ok(())
            }
            Body::File(content) => self.file(path, inode, content),
        }
    }

    fn directory(&mut self, path: &str, inode: InodeNumber, children: Option<&BTreeSet<&str>>) -> Compared {
        let view = self.view.clone();
        let Some(found) = self.or_lost(path, "its entries", view.read_directory(inode, 0, usize::MAX))?
        else {
            return Ok(());
        };
        let names: Vec<_> = found.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect();
        let names: BTreeSet<&str> = names.iter().map(AsRef::as_ref).collect();
        if names != children.cloned().unwrap_or_default() {
            return Err(differ(self.place(path), format!("has {names:?} instead of {children:?}")));
        }
        Ok(())
    }

    fn file(&mut self, path: &str, inode: InodeNumber, content: &Content) -> Compared {
        let view = self.view.clone();
        let ranges = self.or_lost(path, "where its data lies", view.data_ranges(inode))?;
        let mut blocks = BTreeSet::new();
        for (offset, length) in ranges.into_iter().flatten().chain(content.runs()) {
            let end = (offset + length).min(content.size()).div_ceil(BLOCK as u64);
            blocks.extend(offset / BLOCK as u64..end);
        }
        while let Some(first) = blocks.pop_first() {
            let mut end = first + 1;
            while end - first < TOGETHER && blocks.remove(&end) {
                end += 1;
            }
            if self.stretch(path, inode, content, first..end)? {
                continue;
            }
            for block in first..end {
                if !self.stretch(path, inode, content, block..block + 1)? {
                    let what = format!("the block at {}", block * BLOCK as u64);
                    self.remains.lose(self.name, path, what);
                }
            }
        }
        Ok(())
    }

    /// Compares blocks that are read together. False if one of them is lost.
    fn stretch(
        &mut self,
        path: &str,
        inode: InodeNumber,
        content: &Content,
        blocks: Range<u64>,
    ) -> Compared<bool> {
        let offset = blocks.start * BLOCK as u64;
        let length = (blocks.end * BLOCK as u64).min(content.size()) - offset;
        let (mut found, mut expected) = (vec![0; length as usize], vec![0; length as usize]);
        match self.view.read(inode, offset, &mut found) {
            Ok(read) if read == found.len() => {}
            Ok(read) => {
                let detail = format!("has {read} bytes at {offset}, instead of {length}");
                return Err(differ(self.place(path), detail));
            }
            Err(Error::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(failed(&self.place(path), &error)),
        }
        content.read(offset, &mut expected);
        if let Some(byte) = found.iter().zip(&expected).position(|(mine, theirs)| mine != theirs) {
            let detail = format!(
                "is {:#04x} instead of {:#04x} at byte {}",
                found[byte],
                expected[byte],
                offset + byte as u64
            );
            return Err(differ(self.place(path), detail));
        }
        self.remains.blocks += blocks.end - blocks.start;
        Ok(true)
    }
}
