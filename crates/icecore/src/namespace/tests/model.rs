//! The model: a file system of plain maps.

use super::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct ModelInode {
    pub kind: InodeKind,
    pub links: u32,
    pub size: u64,
    pub modify: i64,
    pub change: i64,
    pub parent: u64,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub blocks: BTreeMap<u64, (Stream, u64)>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub target: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub inodes: BTreeMap<u64, ModelInode>,
    pub next: u64,
}

type Outcome<T> = std::result::Result<T, FileFault>;

fn check_name(name: &[u8]) -> Outcome<()> {
    match name {
        b"" | b"." | b".." => Err(FileFault::Invalid),
        _ if name.len() > 255 => Err(FileFault::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(FileFault::Invalid),
        _ => Ok(()),
    }
}

impl Model {
    pub fn new(time: i64) -> Self {
        let mut model = Self { inodes: BTreeMap::new(), next: 1 };
        model.add(InodeKind::Directory, 1, time);
        model
    }

    fn add(&mut self, kind: InodeKind, parent: u64, time: i64) -> u64 {
        let directory = kind == InodeKind::Directory;
        let inode = ModelInode {
            kind,
            links: if directory { 2 } else { 1 },
            size: 0,
            modify: time,
            change: time,
            parent: if directory { parent } else { 0 },
            entries: BTreeMap::new(),
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            target: Vec::new(),
        };
        self.inodes.insert(self.next, inode);
        self.next += 1;
        self.next - 1
    }

    pub fn get(&self, inode: u64) -> Outcome<&ModelInode> {
        self.inodes.get(&inode).ok_or(FileFault::Stale)
    }

    fn get_mut(&mut self, inode: u64) -> &mut ModelInode {
        self.inodes.get_mut(&inode).expect("looked up before")
    }

    fn directory(&self, inode: u64) -> Outcome<&ModelInode> {
        let directory = self.get(inode)?;
        if directory.kind == InodeKind::Directory { Ok(directory) } else { Err(FileFault::NotADirectory) }
    }

    pub fn lookup(&self, parent: u64, name: &[u8]) -> Outcome<u64> {
        let directory = self.directory(parent)?;
        check_name(name)?;
        directory.entries.get(name).copied().ok_or(FileFault::NotFound)
    }

    fn check_new_name(&self, parent: u64, name: &[u8]) -> Outcome<()> {
        let directory = self.directory(parent)?;
        if directory.links == 0 {
            return Err(FileFault::NotFound);
        }
        check_name(name)?;
        if directory.entries.contains_key(name) { Err(FileFault::Exists) } else { Ok(()) }
    }

    fn attach(&mut self, parent: u64, name: &[u8], inode: u64, time: i64) {
        let directory = self.is_directory(inode);
        let parent_inode = self.get_mut(parent);
        assert!(parent_inode.entries.insert(name.to_vec(), inode).is_none());
        parent_inode.links += u32::from(directory);
        (parent_inode.modify, parent_inode.change) = (time, time);
        if directory {
            self.get_mut(inode).parent = parent;
        }
    }

    fn detach(&mut self, parent: u64, name: &[u8], time: i64) {
        let inode = self.get_mut(parent).entries.remove(name).expect("looked up before");
        let directory = self.is_directory(inode);
        let parent = self.get_mut(parent);
        parent.links -= u32::from(directory);
        (parent.modify, parent.change) = (time, time);
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.inodes[&inode].kind == InodeKind::Directory
    }

    fn drop_link(&mut self, inode: u64, time: i64) -> bool {
        let item = self.get_mut(inode);
        item.links = if item.kind == InodeKind::Directory { 0 } else { item.links - 1 };
        item.change = time;
        item.links == 0
    }

    pub fn create(
        &mut self,
        parent: u64,
        name: &[u8],
        kind: InodeKind,
        target: &[u8],
        time: i64,
    ) -> Outcome<u64> {
        if kind == InodeKind::Symlink && target.is_empty() {
            return Err(FileFault::Invalid);
        }
        self.check_new_name(parent, name)?;
        let inode = self.add(kind, parent, time);
        self.get_mut(inode).target = target.to_vec();
        self.get_mut(inode).size = target.len() as u64;
        self.attach(parent, name, inode, time);
        Ok(inode)
    }

    pub fn link(&mut self, inode: u64, parent: u64, name: &[u8], time: i64) -> Outcome<()> {
        let item = self.get(inode)?;
        match (item.kind, item.links) {
            (InodeKind::Directory, _) => return Err(FileFault::NotPermitted),
            (_, 0) => return Err(FileFault::NotFound),
            _ => self.check_new_name(parent, name)?,
        }
        self.attach(parent, name, inode, time);
        let item = self.get_mut(inode);
        item.links += 1;
        item.change = time;
        Ok(())
    }

    pub fn remove(&mut self, parent: u64, name: &[u8], directory: bool, time: i64) -> Outcome<Option<u64>> {
        let inode = self.lookup(parent, name)?;
        match (self.is_directory(inode), directory) {
            (true, false) => return Err(FileFault::IsADirectory),
            (false, true) => return Err(FileFault::NotADirectory),
            (true, true) if !self.inodes[&inode].entries.is_empty() => return Err(FileFault::NotEmpty),
            _ => {}
        }
        self.detach(parent, name, time);
        Ok(self.drop_link(inode, time).then_some(inode))
    }

    fn is_below(&self, mut inode: u64, above: u64) -> bool {
        loop {
            if inode == above {
                return true;
            }
            if inode == 1 {
                return false;
            }
            inode = self.inodes[&inode].parent;
        }
    }

    pub fn rename(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
        time: i64,
    ) -> Outcome<Option<u64>> {
        let source = self.lookup(from.0, from.1)?;
        if self.directory(to.0)?.links == 0 {
            return Err(FileFault::NotFound);
        }
        check_name(to.1)?;
        let target = self.inodes[&to.0].entries.get(to.1).copied();
        match (target, how) {
            (Some(_), RenameHow::NoReplace) => return Err(FileFault::Exists),
            (None, RenameHow::Exchange) => return Err(FileFault::NotFound),
            (Some(target), _) if target == source => return Ok(None),
            _ => {}
        }
        if self.is_directory(source) && self.is_below(to.0, source) {
            return Err(FileFault::Invalid);
        }
        if let (Some(target), RenameHow::Exchange) = (target, how) {
            if self.is_directory(target) && self.is_below(from.0, target) {
                return Err(FileFault::Invalid);
            }
            self.detach(from.0, from.1, time);
            self.detach(to.0, to.1, time);
            self.attach(from.0, from.1, target, time);
            self.attach(to.0, to.1, source, time);
            self.get_mut(source).change = time;
            self.get_mut(target).change = time;
            return Ok(None);
        }
        let mut orphan = None;
        if let Some(target) = target {
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(FileFault::NotADirectory),
                (false, true) => return Err(FileFault::IsADirectory),
                (true, true) if !self.inodes[&target].entries.is_empty() => return Err(FileFault::NotEmpty),
                _ => {}
            }
            self.detach(to.0, to.1, time);
            orphan = self.drop_link(target, time).then_some(target);
        }
        self.detach(from.0, from.1, time);
        self.attach(to.0, to.1, source, time);
        self.get_mut(source).change = time;
        Ok(orphan)
    }

    /// The file, to change it: its times are set.
    pub fn file(&mut self, inode: u64, time: i64) -> Outcome<&mut ModelInode> {
        match self.get(inode)?.kind {
            InodeKind::File => {}
            InodeKind::Directory => return Err(FileFault::IsADirectory),
            _ => return Err(FileFault::Invalid),
        }
        let file = self.get_mut(inode);
        (file.modify, file.change) = (time, time);
        Ok(file)
    }

    pub fn xattr(
        &mut self,
        inode: u64,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrHow,
        time: i64,
    ) -> Outcome<()> {
        let exists = self.get(inode)?.xattrs.contains_key(name);
        match (exists, how) {
            (true, XattrHow::Create) => return Err(FileFault::Exists),
            (false, XattrHow::Replace) => return Err(FileFault::NoSuchAttribute),
            _ => {}
        }
        let item = self.get_mut(inode);
        item.change = time;
        match value {
            Some(value) => item.xattrs.insert(name.to_vec(), value.to_vec()),
            None => item.xattrs.remove(name),
        };
        Ok(())
    }

    /// Compares everything with what a reader sees.
    pub fn verify(&self, reader: &TreeReader<'_>) {
        let counters = reader.super_item().unwrap();
        assert_eq!((counters.next_inode, counters.inodes), (self.next, self.inodes.len() as u64));
        let mut orphans = BTreeSet::new();
        reader.orphans(&mut |inode| Ok(orphans.insert(inode.0))).unwrap();
        let expected = self.inodes.iter().filter(|(_, item)| item.links == 0).map(|(inode, _)| *inode);
        assert_eq!(orphans, expected.collect());
        for (number, expected) in &self.inodes {
            verify_inode(reader, InodeNumber(*number), expected);
        }
    }
}

fn verify_inode(reader: &TreeReader<'_>, inode: InodeNumber, expected: &ModelInode) {
    let item = reader.inode(inode).unwrap();
    assert_eq!((item.kind, item.links, item.parent.0), (expected.kind, expected.links, expected.parent));
    assert_eq!((item.modify.0, item.change.0), (expected.modify, expected.change), "times of {inode}");
    assert_eq!(item.blocks, expected.blocks.len() as u64);
    let names: BTreeSet<_> = reader.xattr_names(inode).unwrap().into_iter().collect();
    assert_eq!(names, expected.xattrs.keys().cloned().collect());
    for (name, value) in &expected.xattrs {
        assert_eq!(&reader.xattr(inode, name).unwrap(), value);
    }
    match expected.kind {
        InodeKind::Directory => {
            let mut entries = BTreeMap::new();
            let mut cookie = 255;
            reader
                .entries(inode, 0, &mut |entry| {
                    assert!(entry.cookie > cookie && entry.cookie < 1 << 63);
                    cookie = entry.cookie;
                    entries.insert(entry.name, entry.inode.0);
                    Ok(true)
                })
                .unwrap();
            assert_eq!(entries, expected.entries);
        }
        InodeKind::Symlink => assert_eq!(reader.link_target(inode).unwrap(), expected.target),
        _ => {
            assert_eq!(item.size, expected.size);
            verify_blocks(reader, inode, expected);
        }
    }
}

fn verify_blocks(reader: &TreeReader<'_>, inode: InodeNumber, expected: &ModelInode) {
    let mut blocks = BTreeMap::new();
    let visit = &mut |first: FileBlock, run: Run| {
        for index in 0..run.length.0 {
            blocks.insert(first.0 + index, (run.stream, run.start.0 + index));
        }
        Ok(true)
    };
    reader.extents(inode, FileBlock(0), FileBlock(u64::MAX), visit).unwrap();
    assert_eq!(blocks, expected.blocks);
    for (first, end) in [(3, 9), (10, 11), (40, 200)] {
        let mut part = BTreeMap::new();
        let visit = &mut |first: FileBlock, run: Run| {
            part.extend((0..run.length.0).map(|at| (first.0 + at, (run.stream, run.start.0 + at))));
            Ok(true)
        };
        reader.extents(inode, FileBlock(first), FileBlock(end), visit).unwrap();
        assert!(part.iter().eq(expected.blocks.range(first..end)));
        let run = reader.run_at(inode, FileBlock(first)).unwrap();
        assert_eq!(run.map(|run| (run.stream, run.start.0)), expected.blocks.get(&first).copied());
    }
}
