//! Random histories of a file system beside a model. The process of the mount is killed at a random moment of
//! each. What is there after that is the state after a step of the history, and no step before the last
//! fsync.
//!
//! `ICECORE_SEED` repeats the steps of a run (not its moments), `ICECORE_SECONDS` makes it longer.

use crate::fixture::{Fixture, can_mount};
use crate::model::{Content, Model, Node, Random, Seen, Step, pattern};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps that one history has at most: all of its states are kept.
const STEPS_MAX: usize = 4000;

fn number_of(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
        Err(_) => default,
    }
}

#[test]
fn a_killed_mount_is_as_after_the_last_fsync_or_later() {
    if !can_mount() {
        return;
    }
    let chance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let (seed, seconds) = (number_of("ICECORE_SEED", chance), number_of("ICECORE_SECONDS", 15));
    let began = Instant::now();
    let mut life = Life::new(seed);
    let mut rounds = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        life.round();
        rounds += 1;
    }
    println!("seed {seed}: {rounds} kills, {} steps, {} lost with them", life.steps, life.lost);
    assert!(life.steps > 20 * rounds, "{} steps in {rounds} rounds prove nothing", life.steps);
    life.fixture.unmount();
    life.fixture.done(&["scrub"]);
}

/// What was lived through.
struct Life {
    fixture: Fixture,
    seed: u64,
    random: Random,
    model: Model,
    /// The last snapshot, and what is in it.
    snapshot: Option<(String, Model)>,
    snapshots: u64,
    steps: u64,
    lost: u64,
}

/// The states of one round: `states[0]` is where it began.
struct History {
    states: Vec<Model>,
    done: Vec<Step>,
    /// The states before this one cannot come back.
    durable: usize,
}

impl Life {
    fn new(seed: u64) -> Self {
        let fixture = Fixture::new();
        fixture.mount();
        let random = Random::new(seed);
        let model = Model::default();
        Self { fixture, seed, random, model, snapshot: None, snapshots: 0, steps: 0, lost: 0 }
    }

    fn round(&mut self) {
        let owner = self.fixture.owner();
        let wait = Duration::from_millis(self.random.below(500));
        let killed = AtomicBool::new(false);
        let history = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(wait);
                killed.store(true, Ordering::SeqCst);
                Fixture::kill(owner);
            });
            self.live(&killed)
        });
        self.fixture.mount_again();
        let found = look(&self.fixture.path("db"));
        let candidates = history.durable..history.states.len();
        let at = candidates.rev().find(|at| history.states[*at].seen() == found);
        let Some(at) = at else { panic!("{}", self.report(&history, &found)) };
        self.steps += history.done.len() as u64;
        self.lost += (history.states.len() - 1 - at) as u64;
        self.model = history.states[at].clone();
        if let Some((name, model)) = &self.snapshot {
            let seen = look(&self.fixture.path("db/.icecore/snapshots").join(name));
            assert!(
                seen == model.seen(),
                "seed {}: snapshot {name}: {}",
                self.seed,
                difference(model, &seen)
            );
        }
    }

    /// Steps until the mount is gone.
    fn live(&mut self, killed: &AtomicBool) -> History {
        let root = self.fixture.path("db");
        let mut history = History { states: vec![self.model.clone()], done: Vec::new(), durable: 0 };
        // Open files without a name take space, and no part in anything else.
        let mut nameless: Option<File> = None;
        loop {
            let before = history.states.last().expect("the first one").clone();
            let outcome = match self.random.below(100) {
                0..8 => self.sync(&before, &root).map(|()| history.durable = history.states.len() - 1),
                8 => nameless_file(&root).map(|file| nameless = Some(file)),
                9 if self.random.below(4) == 0 => {
                    self.take_snapshot(&before, killed).map(|()| history.durable = history.states.len() - 1)
                }
                _ if history.done.len() == STEPS_MAX => self.sync(&before, &root),
                _ => {
                    let Some(step) = before.draw(&mut self.random) else { continue };
                    // It may be done although its answer was lost, and the first page of it alone.
                    history.states.extend(step.first_page().map(|part| before.after(&part)));
                    history.states.push(before.after(&step));
                    history.done.push(step);
                    perform(history.done.last().expect("pushed"), &root)
                }
            };
            if let Err(error) = outcome {
                let gone = [libc::ENOTCONN, libc::ECONNABORTED].map(Some);
                assert!(
                    killed.load(Ordering::SeqCst) && gone.contains(&error.raw_os_error()),
                    "seed {}: {:?}: {error}",
                    self.seed,
                    history.done.last()
                );
                return history;
            }
        }
    }

    /// Of one file or directory. It makes everything before durable.
    fn sync(&mut self, state: &Model, root: &Path) -> io::Result<()> {
        let mut paths = [state.files(), state.directories()].concat();
        paths.push(String::new());
        let path = &paths[self.random.below(paths.len() as u64) as usize];
        let file = File::open(root.join(path))?;
        if self.random.below(2) == 0 { file.sync_all() } else { file.sync_data() }
    }

    fn take_snapshot(&mut self, state: &Model, killed: &AtomicBool) -> io::Result<()> {
        self.snapshots += 1;
        let name = format!("s{}", self.snapshots);
        let output = self.fixture.run(&["snapshot", &format!("db@{name}")]);
        // Without the process of the mount, the command opens the pool itself, which is in an older state
        // then.
        if killed.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        }
        assert!(output.status.success(), "{output:?}");
        self.snapshot = Some((name, state.clone()));
        Ok(())
    }

    fn report(&self, history: &History, found: &Seen) -> String {
        let last = history.states.len() - 1;
        let earlier = (0..history.durable).rev().find(|at| history.states[*at].seen() == *found);
        let what = earlier.map_or_else(
            || {
                format!(
                    "no state of the history; against the last one: {}",
                    difference(&history.states[last], found)
                )
            },
            |at| {
                format!(
                    "state {at}, from before the last fsync: {}",
                    difference(&history.states[last], found)
                )
            },
        );
        let shown = history.done.len().saturating_sub(30);
        format!(
            "seed {}: {} steps and {} states, durable from state {}: what is there is {what}\nthe last steps: {:#?}",
            self.seed,
            history.done.len(),
            history.states.len(),
            history.durable,
            &history.done[shown..]
        )
    }
}

/// A file that was removed while it was open, and written to.
fn nameless_file(root: &Path) -> io::Result<File> {
    let path = root.join("nameless");
    // One that a killed mount has left with its name is no part of the model either.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
    fs::remove_file(&path)?;
    file.write_all_at(&pattern(20_000, 1), 0)?;
    Ok(file)
}

/// A write is short only if the mount went away in it.
fn whole(written: usize, length: u64) -> io::Result<()> {
    if written as u64 == length { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOTCONN)) }
}

/// Makes a step, in one system call that changes something.
fn perform(step: &Step, root: &Path) -> io::Result<()> {
    let at = |path: &str| root.join(path);
    match step {
        Step::Create(path, mode) => {
            OpenOptions::new().write(true).create_new(true).mode(*mode).open(at(path)).map(drop)
        }
        Step::Write { path, length, fill, append: true, .. } => {
            let mut file = OpenOptions::new().append(true).open(at(path))?;
            whole(file.write(&pattern(*length, *fill))?, *length)
        }
        Step::Write { path, offset, length, fill, append: false } => {
            let file = OpenOptions::new().write(true).open(at(path))?;
            whole(file.write_at(&pattern(*length, *fill), *offset)?, *length)
        }
        Step::Truncate(path, size) => OpenOptions::new().write(true).open(at(path))?.set_len(*size),
        Step::Punch { path, offset, length } => {
            let file = OpenOptions::new().write(true).open(at(path))?;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file, flags, *offset, *length)?)
        }
        Step::Rename { from, to, exchange } => {
            let flags = if *exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
            Ok(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?)
        }
        Step::Link { from, to } => Ok(rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty())?),
        Step::Unlink(path) => fs::remove_file(at(path)),
        Step::MakeDirectory(path, mode) => fs::DirBuilder::new().mode(*mode).create(at(path)),
        Step::RemoveDirectory(path) => fs::remove_dir(at(path)),
        Step::Symlink { target, path } => std::os::unix::fs::symlink(target, at(path)),
        Step::SetMode(path, mode) => fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)),
        Step::SetAttribute { path, name, value } => {
            Ok(rustix::fs::setxattr(at(path), name, value, XattrFlags::empty())?)
        }
        Step::RemoveAttribute { path, name } => Ok(rustix::fs::removexattr(at(path), name)?),
    }
}

/// What is on the file system.
fn look(root: &Path) -> Seen {
    let (mut seen, mut first) = (Seen::new(), BTreeMap::new());
    let mut paths = Vec::new();
    walk(root, "", &mut paths);
    paths.sort();
    for path in paths.into_iter().filter(|path| path != "nameless") {
        let at = root.join(&path);
        let metadata = fs::symlink_metadata(&at).unwrap();
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            Content::Directory
        } else if kind.is_symlink() {
            Content::Symlink(fs::read_link(&at).unwrap().into_os_string().into_string().unwrap())
        } else {
            Content::File(fs::read(&at).unwrap())
        };
        let attributes = if kind.is_symlink() { BTreeMap::new() } else { attributes(&at) };
        let node = Rc::new(Node { content, mode: metadata.mode() & 0o7777, attributes });
        let number = metadata.ino();
        let first = first.entry(number).or_insert_with(|| (path.clone(), 0_u64));
        first.1 += 1;
        seen.insert(path, (first.0.clone(), node));
    }
    for (path, links) in first.into_values() {
        let metadata = fs::symlink_metadata(root.join(&path)).unwrap();
        assert!(
            metadata.is_dir() || metadata.nlink() == links,
            "{path}: {links} names, {}",
            metadata.nlink()
        );
    }
    seen
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let leaf = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { leaf } else { format!("{below}/{leaf}") };
        if entry.file_type().unwrap().is_dir() {
            walk(root, &path, paths);
        }
        paths.push(path);
    }
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut names, mut value) = (vec![0; 4096], vec![0; 4096]);
    let length = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let mut read = |name: &[u8]| {
        let length = rustix::fs::getxattr(path, name, &mut value).unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), value[..length].to_vec())
    };
    names.map(&mut read).collect()
}

/// What differs, path by path.
fn difference(model: &Model, found: &Seen) -> String {
    let wanted = model.seen();
    let mut paths: Vec<&String> = wanted.keys().chain(found.keys()).collect();
    paths.sort();
    paths.dedup();
    let mut text = String::new();
    for path in paths.into_iter().filter(|path| wanted.get(*path) != found.get(*path)) {
        text.push_str(&format!("\n  {path}: {:?} wanted, {:?} found", wanted.get(path), found.get(path)));
    }
    text
}
