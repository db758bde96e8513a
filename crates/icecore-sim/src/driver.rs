//! Between the model and the store: does to a pool what a step says, and compares a pool with a model.

use crate::model::{Body, Content, FileChange, GroupWrite, ModelPool, Snapshot, Step, Tree};
use icecore::units::InodeNumber;
use icecore::{
    AttributeChange, Creation, Dataset, DestroyTarget, Error, FileFault, Group, InodeKind, ListFilter, Pool,
    RenameHow, Result, View, XattrHow,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Bytes of a file read in one call.
const READ_BYTES: usize = 1 << 20;

/// Does what a step says to a pool. Answers the name that a rollback has given to the former head.
///
/// [`Step::Reopen`] is for the caller, who owns the pool: here it only makes everything durable.
///
/// # Errors
/// What the store answers.
pub fn drive(pool: &Pool, step: &Step) -> Result<Option<String>> {
    match step {
        Step::Change { dataset, change } => drive_change(&pool.dataset(dataset)?, change)?,
        Step::Group { writes, durable } => drive_group(pool, writes, *durable)?,
        Step::Sync | Step::Reopen => pool.sync()?,
        Step::Checkpoint => pool.checkpoint()?,
        Step::Collect { segments, checkpoint: true } => drop(pool.collect(*segments)?),
        Step::Collect { segments, checkpoint: false } => drop(pool.collect_as_it_is(*segments)?),
        Step::Trim => drop(pool.trim()?),
        Step::CreateDataset { name, parents } => pool.create_dataset(name, *parents, &[])?,
        Step::Snapshot { names, recursive } => drop(pool.snapshot(names, *recursive, &[])?),
        Step::Clone { snapshot, target } => pool.clone_snapshot(snapshot, target, false)?,
        Step::Rollback { snapshot } => {
            return pool.rollback(snapshot, true).map(|report| Some(report.saved_as));
        }
        Step::Promote { dataset } => pool.promote(dataset)?,
        Step::Rename { from, to, recursive } => pool.rename(from, to, *recursive)?,
        Step::Destroy(target) => {
            let plan = pool.plan_destroy(target)?;
            let before = held(pool)?;
            let so_far = unread(pool);
            let done = pool.destroy(target)?;
            assert_eq!(plan.names, done.names, "what was planned is what was done");
            // Where a set could not be read meanwhile, it does not say.
            assert!(plan == done || (done.frees.0 == 0 && unread(pool) > so_far), "{plan:?}, then {done:?}");
            assert_freed(pool, before, plan.frees.0, target);
        }
        Step::Hold { tag, snapshot } => pool.hold(tag, snapshot)?,
        Step::Release { tag, snapshot } => pool.release(tag, snapshot)?,
    }
    Ok(None)
}

/// Times that the books are asked for until they can be read.
const ASKED_MAX: usize = 3;

/// What a destruction frees is what it said. What of the sets could not be read then is freed when it can be:
/// asking for figures tries it.
fn assert_freed(pool: &Pool, before: u64, frees: u64, target: &DestroyTarget) {
    for _ in 0..ASKED_MAX {
        let so_far = unread(pool);
        let after = held(pool);
        if let Some(after) = after.ok().filter(|_| unread(pool) == so_far) {
            assert_eq!(before.checked_sub(after), Some(frees), "{target:?} frees what it says");
            return;
        }
    }
}

/// Reads that failed so far, or did not find what was written.
fn unread(pool: &Pool) -> u64 {
    let statistics = pool.statistics();
    statistics.failed_reads + statistics.damaged_reads
}

/// Bytes that versions reach, also of what was destroyed, and is read or could not be freed. What clones
/// share of a destroyed dataset belongs to no dataset.
fn held(pool: &Pool) -> Result<u64> {
    let filter = ListFilter { datasets: true, depth: Some(0), ..ListFilter::default() };
    // Listing frees everything that has no readers.
    let listed: u64 = pool.list(&filter)?.iter().map(|entry| entry.used.0).sum();
    let statistics = pool.statistics();
    let held = statistics.used_bytes + statistics.freeing_bytes;
    assert!(listed <= held, "datasets use {listed} of {held} bytes");
    Ok(held)
}

/// Whether everything up to and with a step is durable once the store has returned. The store promises that
/// for every change to datasets and snapshots, which is more than the model asks for.
#[must_use]
pub const fn is_durable_on_return(step: &Step) -> bool {
    !matches!(
        step,
        Step::Change { .. } | Step::Group { durable: false, .. } | Step::Collect { checkpoint: false, .. }
    )
}

fn resolve(view: &View, path: &str) -> Result<InodeNumber> {
    view.resolve(path.as_bytes())?.ok_or_else(|| FileFault::NotFound.into())
}

/// The directory that a path lies in, and the last name of the path.
fn place<'a>(view: &View, path: &'a str) -> Result<(InodeNumber, &'a [u8])> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((resolve(view, directory)?, name.as_bytes()))
}

fn drive_change(dataset: &Dataset, change: &FileChange) -> Result<()> {
    let view = dataset.view()?;
    match change {
        FileChange::CreateFile { path, mode } => {
            let (directory, name) = place(&view, path)?;
            dataset.create(directory, name, &Creation { mode: *mode as u16, ..Creation::file() }).map(drop)
        }
        FileChange::CreateDirectory { path, mode } => {
            let (directory, name) = place(&view, path)?;
            dataset
                .create(directory, name, &Creation { mode: *mode as u16, ..Creation::directory() })
                .map(drop)
        }
        FileChange::CreateSymlink { path, target } => {
            let (directory, name) = place(&view, path)?;
            let new = Creation { mode: 0o777, ..Creation::file() };
            dataset.create_symlink(directory, name, target.as_bytes(), &new).map(drop)
        }
        FileChange::Write { path, offset, data } => {
            dataset.write(resolve(&view, path)?, *offset, &data.bytes())
        }
        FileChange::Truncate { path, size } => dataset.truncate(resolve(&view, path)?, *size),
        FileChange::Punch { path, offset, length } => {
            dataset.punch_hole(resolve(&view, path)?, *offset, *length)
        }
        FileChange::SetMode { path, mode } => {
            let change = AttributeChange { mode: Some(*mode as u16), ..AttributeChange::default() };
            dataset.set_attributes(resolve(&view, path)?, &change).map(drop)
        }
        FileChange::SetAttribute { path, name, value } => {
            dataset.set_xattr(resolve(&view, path)?, name.as_bytes(), &value.bytes(), XattrHow::Set)
        }
        FileChange::RemoveAttribute { path, name } => {
            dataset.remove_xattr(resolve(&view, path)?, name.as_bytes())
        }
        FileChange::Link { path, to } => {
            let inode = resolve(&view, path)?;
            let (directory, name) = place(&view, to)?;
            dataset.link(inode, directory, name).map(drop)
        }
        FileChange::Unlink { path } => {
            let (directory, name) = place(&view, path)?;
            dataset.unlink(directory, name).map(drop)
        }
        FileChange::RemoveDirectory { path } => {
            let (directory, name) = place(&view, path)?;
            dataset.remove_directory(directory, name).map(drop)
        }
        FileChange::Rename { from, to } => {
            dataset.rename(place(&view, from)?, place(&view, to)?, RenameHow::Replace).map(drop)
        }
    }
}

fn drive_group(pool: &Pool, writes: &[(String, GroupWrite)], durable: bool) -> Result<()> {
    let mut groups: BTreeMap<&str, (Group, View)> = BTreeMap::new();
    for (name, write) in writes {
        if !groups.contains_key(name.as_str()) {
            let dataset = pool.dataset(name)?;
            groups.insert(name, (dataset.begin()?, dataset.view()?));
        }
        let Some((group, view)) = groups.get_mut(name.as_str()) else { continue };
        match write {
            GroupWrite::Write { path, offset, data } => {
                let inode = resolve(view, path)?;
                let bytes = data.bytes();
                group.write(inode, *offset, &bytes)?;
                let mut seen = vec![0; bytes.len()];
                let length = group.read(view, inode, *offset, &mut seen)?;
                assert!(length == bytes.len() && seen == bytes, "a group sees what it has written");
            }
            GroupWrite::Truncate { path, size } => {
                let inode = resolve(view, path)?;
                group.truncate(inode, *size)?;
                assert_eq!(group.size(view, inode)?, *size, "a group sees the size it has set");
            }
        }
    }
    let point = pool.commit(groups.into_values().map(|(group, _)| group).collect())?;
    if durable { pool.make_durable(point) } else { Ok(()) }
}

/// Where a pool and a model are not the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Dataset or snapshot, and path.
    pub place: String,
    /// What the pool has there, and the model.
    pub detail: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.detail)
    }
}

fn differ(place: impl Into<String>, detail: impl Into<String>) -> Difference {
    Difference { place: place.into(), detail: detail.into() }
}

/// Everything that a pool shows: read once, compared with as many models as need be.
#[derive(Debug)]
pub struct Picture {
    datasets: BTreeMap<String, DatasetPicture>,
}

#[derive(Debug)]
struct DatasetPicture {
    head: TreePicture,
    origin: Option<String>,
    snapshots: Vec<SnapshotPicture>,
}

#[derive(Debug)]
struct SnapshotPicture {
    short: String,
    tree: TreePicture,
    holds: BTreeSet<String>,
    clones: BTreeSet<String>,
}

/// Paths with their inodes, and inodes with what they are.
#[derive(Debug, Default)]
struct TreePicture {
    paths: BTreeMap<String, u64>,
    inodes: BTreeMap<u64, InodePicture>,
}

#[derive(Debug)]
struct InodePicture {
    mode: u32,
    links: u64,
    attributes: BTreeMap<String, Vec<u8>>,
    body: BodyPicture,
}

#[derive(Debug)]
enum BodyPicture {
    File(Content),
    Directory,
    Symlink(String),
}

impl Picture {
    /// Reads everything through views.
    ///
    /// # Errors
    /// What the store answers.
    pub fn take(pool: &Pool) -> Result<Self> {
        let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        let mut datasets: BTreeMap<String, DatasetPicture> = BTreeMap::new();
        for entry in pool.list(&filter)? {
            let tree = read_tree(&pool.view(&entry.name)?)?;
            let Some((dataset, short)) = entry.name.split_once('@') else {
                let picture = DatasetPicture { head: tree, origin: entry.origin, snapshots: Vec::new() };
                datasets.insert(entry.name, picture);
                continue;
            };
            let holds = pool.holds(&entry.name)?.into_iter().map(|hold| hold.tag).collect();
            let clones = entry.clones.into_iter().collect();
            let snapshot = SnapshotPicture { short: short.to_owned(), tree, holds, clones };
            if let Some(dataset) = datasets.get_mut(dataset) {
                dataset.snapshots.push(snapshot);
            }
        }
        Ok(Self { datasets })
    }

    /// How the pool differs from a model, if it does. Names that the model does not know are taken as they
    /// are.
    #[must_use]
    pub fn difference(&self, model: &ModelPool) -> Option<Difference> {
        self.compare(model).err()
    }

    /// Gives a model the names of automatic snapshots that it does not know. The two must be alike.
    pub fn tell_names(&self, model: &mut ModelPool) {
        for (name, dataset) in &self.datasets {
            let ids: Vec<_> = model.snapshots_of(name).map(|(id, _)| id).collect();
            for (id, snapshot) in ids.into_iter().zip(&dataset.snapshots) {
                model.name_automatic(id, &snapshot.short);
            }
        }
    }

    fn compare(&self, model: &ModelPool) -> Result<(), Difference> {
        let (mine, theirs): (Vec<_>, Vec<_>) =
            (self.datasets.keys().collect(), model.datasets().keys().collect());
        if mine != theirs {
            return Err(differ("the pool", format!("has datasets {mine:?} instead of {theirs:?}")));
        }
        for (name, dataset) in &self.datasets {
            let expected = &model.datasets()[name];
            compare_trees(name, &dataset.head, &expected.head)?;
            let snapshots: Vec<_> = model.snapshots_of(name).map(|(_, snapshot)| snapshot).collect();
            compare_snapshots(name, &dataset.snapshots, &snapshots)?;
        }
        self.compare_clones(model)
    }

    fn compare_clones(&self, model: &ModelPool) -> Result<(), Difference> {
        let mut clones: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for (name, dataset) in &self.datasets {
            let origin = model.origin(name);
            if dataset.origin.is_some() != origin.is_some() {
                return Err(differ(name, format!("has origin {:?} instead of {origin:?}", dataset.origin)));
            }
            if let (Some(id), Some(origin)) = (origin, &dataset.origin) {
                let expected = model.full_name(id);
                if !expected.is_like(origin) {
                    return Err(differ(name, format!("has origin {origin} instead of {expected:?}")));
                }
                clones.entry(id).or_default().insert(name.clone());
            }
        }
        for (name, dataset) in &self.datasets {
            for (snapshot, (id, _)) in dataset.snapshots.iter().zip(model.snapshots_of(name)) {
                let expected = clones.remove(&id).unwrap_or_default();
                if snapshot.clones != expected {
                    let detail = format!("has clones {:?} instead of {expected:?}", snapshot.clones);
                    return Err(differ(format!("{name}@{}", snapshot.short), detail));
                }
            }
        }
        Ok(())
    }
}

/// How a pool differs from a model.
///
/// # Errors
/// The first difference; what the store answers when it cannot be read is one, too.
pub fn compare(pool: &Pool, model: &ModelPool) -> Result<(), Difference> {
    let picture =
        Picture::take(pool).map_err(|error| differ("the pool", format!("cannot be read: {error}")))?;
    picture.compare(model)
}

/// How what a view shows differs from a tree of the model.
///
/// # Errors
/// The first difference; what the store answers when it cannot be read is one, too.
pub fn compare_view(name: &str, view: &View, expected: &Tree) -> Result<(), Difference> {
    let tree = read_tree(view).map_err(|error| differ(name, format!("cannot be read: {error}")))?;
    compare_trees(name, &tree, expected)
}

/// Compares a pool, parts of which are damaged, with a model, version by version. Answers the full names of
/// those that cannot be read for damage.
///
/// # Errors
/// The first difference in what can be read; any other error than damage is one, too.
pub fn compare_damaged(pool: &Pool, model: &ModelPool) -> Result<BTreeSet<String>, Difference> {
    let failed = |place: &str, error: &Error| differ(place, format!("cannot be read: {error}"));
    let mut trees: BTreeMap<String, &Tree> = BTreeMap::new();
    for (name, dataset) in model.datasets() {
        trees.insert(name.clone(), &dataset.head);
    }
    for (name, snapshot) in model.named_snapshots() {
        trees.insert(name, &snapshot.tree);
    }
    let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    let entries = pool.list(&filter).map_err(|error| failed("the pool", &error))?;
    let names: BTreeSet<&String> = entries.iter().map(|entry| &entry.name).collect();
    if names.len() != trees.len() || trees.keys().any(|name| !names.contains(name)) {
        return Err(differ("the pool", format!("has {names:?} instead of {:?}", trees.keys())));
    }
    let mut damaged = BTreeSet::new();
    for entry in &entries {
        match pool.view(&entry.name).and_then(|view| read_tree(&view)) {
            Ok(tree) => compare_trees(&entry.name, &tree, trees[&entry.name])?,
            Err(Error::Damaged { .. }) => drop(damaged.insert(entry.name.clone())),
            Err(error) => return Err(failed(&entry.name, &error)),
        }
    }
    Ok(damaged)
}

fn compare_snapshots(
    dataset: &str,
    found: &[SnapshotPicture],
    expected: &[&Snapshot],
) -> Result<(), Difference> {
    let alike = found.len() == expected.len()
        && found.iter().zip(expected).all(|(mine, theirs)| match &theirs.short {
            Some(short) => *short == mine.short,
            None => mine.short.starts_with("rollback-"),
        });
    if !alike {
        let mine: Vec<_> = found.iter().map(|snapshot| &snapshot.short).collect();
        let theirs: Vec<_> = expected.iter().map(|snapshot| &snapshot.short).collect();
        return Err(differ(dataset, format!("has snapshots {mine:?} instead of {theirs:?}")));
    }
    for (mine, theirs) in found.iter().zip(expected) {
        let name = format!("{dataset}@{}", mine.short);
        if mine.holds != theirs.holds {
            return Err(differ(name, format!("has holds {:?} instead of {:?}", mine.holds, theirs.holds)));
        }
        compare_trees(&name, &mine.tree, &theirs.tree)?;
    }
    Ok(())
}

fn compare_trees(version: &str, found: &TreePicture, expected: &Tree) -> Result<(), Difference> {
    let paths: BTreeMap<String, u64> = expected.paths().into_iter().collect();
    let (mine, theirs): (Vec<_>, Vec<_>) = (found.paths.keys().collect(), paths.keys().collect());
    if mine != theirs {
        return Err(differ(version, format!("has {mine:?} instead of {theirs:?}")));
    }
    let mut twins: BTreeMap<u64, u64> = BTreeMap::new();
    for (path, number) in &paths {
        let place = || format!("{version}, {path:?}");
        let inode = found.paths[path];
        if *twins.entry(*number).or_insert(inode) != inode {
            return Err(differ(place(), "is not the same file as another name of it"));
        }
        let Some(theirs) = expected.inode(*number) else { continue };
        let mine = &found.inodes[&inode];
        let links = expected.links(*number);
        if (mine.mode, mine.links) != (theirs.mode, links) {
            let detail = format!(
                "has mode {:o} and {} links, not {:o} and {links}",
                mine.mode, mine.links, theirs.mode
            );
            return Err(differ(place(), detail));
        }
        if mine.attributes != theirs.attributes {
            return Err(differ(place(), "has other extended attributes"));
        }
        compare_bodies(&mine.body, &theirs.body).map_err(|detail| differ(place(), detail))?;
    }
    Ok(())
}

fn compare_bodies(mine: &BodyPicture, theirs: &Body) -> Result<(), String> {
    match (mine, theirs) {
        (BodyPicture::Directory, Body::Directory(_)) => Ok(()),
        (BodyPicture::Symlink(mine), Body::Symlink(theirs)) if mine == theirs => Ok(()),
        (BodyPicture::File(mine), Body::File(theirs)) if mine == theirs => Ok(()),
        (BodyPicture::File(mine), Body::File(theirs)) => Err(describe_contents(mine, theirs)),
        _ => Err("is of another kind, or leads elsewhere".to_owned()),
    }
}

fn describe_contents(mine: &Content, theirs: &Content) -> String {
    if mine.size() != theirs.size() {
        return format!("has {} bytes instead of {}", mine.size(), theirs.size());
    }
    let (mut one, mut two) = ([0; 4096], [0; 4096]);
    for (offset, length) in mine.runs().into_iter().chain(theirs.runs()) {
        for at in (offset..offset + length).step_by(4096) {
            mine.read(at, &mut one);
            theirs.read(at, &mut two);
            if let Some(byte) = one.iter().zip(&two).position(|(a, b)| a != b) {
                return format!(
                    "is {:#04x} instead of {:#04x} at byte {}",
                    one[byte],
                    two[byte],
                    at + byte as u64
                );
            }
        }
    }
    "differs".to_owned()
}

fn read_tree(view: &View) -> Result<TreePicture> {
    let mut picture = TreePicture::default();
    let mut open = vec![(String::new(), InodeNumber::ROOT)];
    while let Some((path, inode)) = open.pop() {
        // A file may have several names.
        if let Entry::Vacant(place) = picture.inodes.entry(inode.0) {
            let read = read_inode(view, inode)?;
            if matches!(read.body, BodyPicture::Directory) {
                for entry in view.read_directory(inode, 0, usize::MAX)? {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
                    open.push((inner, entry.inode));
                }
            }
            place.insert(read);
        }
        picture.paths.insert(path, inode.0);
    }
    Ok(picture)
}

fn read_inode(view: &View, inode: InodeNumber) -> Result<InodePicture> {
    let item = view.attributes(inode)?;
    let mut attributes = BTreeMap::new();
    for name in view.list_xattrs(inode)? {
        let value = view.xattr(inode, &name)?;
        attributes.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    let body = match item.kind {
        InodeKind::Directory => BodyPicture::Directory,
        InodeKind::Symlink => {
            BodyPicture::Symlink(String::from_utf8_lossy(&view.read_link(inode)?).into_owned())
        }
        InodeKind::File => BodyPicture::File(read_content(view, inode, item.size)?),
        other => return Err(Error::Invalid(format!("no step makes a {other:?}"))),
    };
    Ok(InodePicture { mode: u32::from(item.mode), links: u64::from(item.links), attributes, body })
}

fn read_content(view: &View, inode: InodeNumber, size: u64) -> Result<Content> {
    let mut content = Content::default();
    let mut buffer = vec![0; READ_BYTES];
    for (offset, length) in view.data_ranges(inode)? {
        let (mut at, end) = (offset, (offset + length).min(size));
        while at < end {
            let wanted = READ_BYTES.min((end - at) as usize);
            let read = view.read(inode, at, &mut buffer[..wanted])?;
            assert_eq!(read, wanted, "a file is as long as it says");
            content.write(at, &buffer[..read]);
            at += read as u64;
        }
    }
    content.truncate(size);
    Ok(content)
}
