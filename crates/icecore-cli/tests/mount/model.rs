//! A model of a file system, and changes of it that one system call makes.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Files stay smaller than this.
pub const FILE_BYTES: u64 = 512 << 10;
/// Bytes that one write has at most.
const WRITE_BYTES: u64 = 96 << 10;
const PAGE_BYTES: u64 = 4096;
const NAMES: u64 = 40;

/// Numbers that look random and are the same for the same seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % limit.max(1)
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    File(Vec<u8>),
    Symlink(String),
    Directory,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    pub content: Content,
    pub mode: u32,
    pub attributes: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::File(data) => write!(f, "file of {} bytes", data.len())?,
            Content::Symlink(target) => write!(f, "link to {target}")?,
            Content::Directory => write!(f, "directory")?,
        }
        write!(f, ", mode {:o}, {:?}", self.mode, self.attributes)
    }
}

/// What a path leads to: the node, and the first path that leads to the same one.
pub type Seen = BTreeMap<String, (String, Rc<Node>)>;

/// A change that one system call makes.
#[derive(Clone, Debug)]
pub enum Step {
    Create(String, u32),
    Write { path: String, offset: u64, length: u64, fill: u8, append: bool },
    Truncate(String, u64),
    Punch { path: String, offset: u64, length: u64 },
    Rename { from: String, to: String, exchange: bool },
    Link { from: String, to: String },
    Unlink(String),
    MakeDirectory(String, u32),
    RemoveDirectory(String),
    Symlink { target: String, path: String },
    SetMode(String, u32),
    SetAttribute { path: String, name: String, value: Vec<u8> },
    RemoveAttribute { path: String, name: String },
}

impl Step {
    /// The part of a write that arrives as a request of its own: where a write begins inside of a page that
    /// is not cached, the kernel sends what is in that page first.
    pub fn first_page(&self) -> Option<Self> {
        let Self::Write { path, offset, length, fill, append } = self else { return None };
        let in_page = PAGE_BYTES - offset % PAGE_BYTES;
        let is_apart = in_page < PAGE_BYTES && in_page < *length;
        is_apart.then(|| Self::Write {
            path: path.clone(),
            offset: *offset,
            length: in_page,
            fill: *fill,
            append: *append,
        })
    }
}

/// Bytes that a write writes: they differ from place to place.
pub fn pattern(length: u64, fill: u8) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 251) as u8).wrapping_add(fill) | 1).collect()
}

/// The file system as it has to be. Cheap to clone.
#[derive(Clone, Default)]
pub struct Model {
    names: BTreeMap<String, u64>,
    nodes: BTreeMap<u64, Rc<Node>>,
    next: u64,
}

impl Model {
    pub fn seen(&self) -> Seen {
        let mut first: BTreeMap<u64, &String> = BTreeMap::new();
        let seen = |(path, number): (&'_ String, &u64)| (path.clone(), *number);
        self.names.iter().for_each(|(path, number)| {
            first.entry(*number).or_insert(path);
        });
        let names = self.names.iter().map(seen);
        names
            .map(|(path, number)| (path, (first[&number].clone(), Rc::clone(&self.nodes[&number]))))
            .collect()
    }

    fn node(&self, path: &str) -> &Node {
        &self.nodes[&self.names[path]]
    }

    fn paths(&self, wanted: impl Fn(&Content) -> bool) -> Vec<String> {
        let is_wanted = |path: &&String| wanted(&self.node(path).content);
        self.names.keys().filter(is_wanted).cloned().collect()
    }

    pub fn files(&self) -> Vec<String> {
        self.paths(|content| matches!(content, Content::File(_)))
    }

    pub fn directories(&self) -> Vec<String> {
        self.paths(|content| *content == Content::Directory)
    }

    fn size(&self, path: &str) -> u64 {
        match &self.node(path).content {
            Content::File(data) => data.len() as u64,
            _ => 0,
        }
    }

    fn is_empty(&self, directory: &str) -> bool {
        let inside = format!("{directory}/");
        !self.names.keys().any(|path| path.starts_with(&inside))
    }

    /// A path with nothing at it.
    fn free(&self, random: &mut Random) -> Option<String> {
        let mut above = self.directories();
        above.push(String::new());
        let above = random.pick(&above)?;
        let leaf = format!("n{}", random.below(30));
        let path = if above.is_empty() { leaf } else { format!("{above}/{leaf}") };
        (!self.names.contains_key(&path) && path.matches('/').count() < 4).then_some(path)
    }

    /// A change that succeeds. `None`: what was drawn does not fit.
    pub fn draw(&self, random: &mut Random) -> Option<Step> {
        let (files, directories) = (self.files(), self.directories());
        let all: Vec<String> = self.names.keys().cloned().collect();
        let file = random.pick(&files).cloned();
        let has_room = (self.names.len() as u64) < NAMES;
        Some(match random.below(26) {
            0 | 1 if has_room => Step::Create(self.free(random)?, self.mode(random)),
            2 if has_room => Step::MakeDirectory(self.free(random)?, 0o700 | self.mode(random)),
            3 if has_room => {
                Step::Symlink { target: format!("to {}", random.below(99)), path: self.free(random)? }
            }
            4 if has_room => Step::Link { from: file?, to: self.free(random)? },
            5 | 6 => self.draw_rename(&all, random)?,
            7 => {
                let is_empty = |path: &&String| self.is_empty(path);
                let empty: Vec<String> = directories.iter().filter(is_empty).cloned().collect();
                Step::RemoveDirectory(random.pick(&empty)?.clone())
            }
            8 | 9 => {
                let removable = self.paths(|content| *content != Content::Directory);
                Step::Unlink(random.pick(&removable)?.clone())
            }
            10 | 11 => Step::Truncate(file?, random.below(FILE_BYTES)),
            12 => {
                let path = file?;
                let offset = random.below(self.size(&path));
                Step::Punch { path, offset, length: 1 + random.below(WRITE_BYTES) }
            }
            13 => {
                Step::SetMode(random.pick(&[files, directories].concat())?.clone(), 0o700 | self.mode(random))
            }
            14 | 15 => {
                let path = random.pick(&[files, directories].concat())?.clone();
                let name = format!("user.{}", random.below(3));
                let value = pattern(random.below(300), random.below(256) as u8);
                Step::SetAttribute { path, name, value }
            }
            16 => {
                let path = random.pick(&[files, directories].concat())?.clone();
                let name = self.node(&path).attributes.keys().next()?.clone();
                Step::RemoveAttribute { path, name }
            }
            other => self.draw_write(file?, other < 20, random)?,
        })
    }

    fn mode(&self, random: &mut Random) -> u32 {
        [0o600, 0o640, 0o644, 0o755][random.below(4) as usize]
    }

    fn draw_write(&self, path: String, append: bool, random: &mut Random) -> Option<Step> {
        let limit = [100, 5000, WRITE_BYTES][random.below(3) as usize];
        let length = 1 + random.below(limit);
        let offset = if append { self.size(&path) } else { random.below(FILE_BYTES - length) };
        let fits = offset + length <= FILE_BYTES;
        fits.then(|| Step::Write { path, offset, length, fill: random.below(256) as u8, append })
    }

    fn draw_rename(&self, all: &[String], random: &mut Random) -> Option<Step> {
        let from = random.pick(all)?.clone();
        let is_directory = |path: &str| self.node(path).content == Content::Directory;
        if random.below(2) == 0 {
            let to = self.free(random)?;
            return (!to.starts_with(&format!("{from}/"))).then_some(Step::Rename {
                from,
                to,
                exchange: false,
            });
        }
        let to = random.pick(all)?.clone();
        let exchange = random.below(3) == 0;
        let nested = from.starts_with(&format!("{to}/")) || to.starts_with(&format!("{from}/"));
        // A rename onto another name of the same file does nothing; what may replace what is rename(2)'s.
        if nested || self.names[&from] == self.names[&to] {
            return None;
        }
        let fits = exchange
            || match (is_directory(&from), is_directory(&to)) {
                (true, true) => self.is_empty(&to),
                (one, other) => one == other,
            };
        fits.then_some(Step::Rename { from, to, exchange })
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Node)) {
        let node = self.nodes.get_mut(&self.names[path]).expect("every name has a node");
        change(Rc::make_mut(node));
    }

    fn change_data(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.change(path, |node| match &mut node.content {
            Content::File(data) => change(data),
            _ => unreachable!("steps on data are drawn for files"),
        });
    }

    fn add(&mut self, path: &str, content: Content, mode: u32) {
        self.next += 1;
        self.names.insert(path.to_owned(), self.next);
        self.nodes.insert(self.next, Rc::new(Node { content, mode, attributes: BTreeMap::new() }));
    }

    fn remove(&mut self, path: &str) {
        let Some(number) = self.names.remove(path) else { return };
        if !self.names.values().any(|other| *other == number) {
            self.nodes.remove(&number);
        }
    }

    /// Takes a name and all below it away; answers them with paths relative to it.
    fn take(&mut self, path: &str) -> Vec<(String, u64)> {
        let inside = format!("{path}/");
        let is_taken = |name: &String| *name == path || name.starts_with(&inside);
        let taken: Vec<String> = self.names.keys().filter(|name| is_taken(name)).cloned().collect();
        let split = |name: String| {
            let number = self.names.remove(&name).expect("listed");
            (name[path.len()..].to_owned(), number)
        };
        taken.into_iter().map(split).collect()
    }

    fn put(&mut self, path: &str, taken: Vec<(String, u64)>) {
        self.names.extend(taken.into_iter().map(|(below, number)| (format!("{path}{below}"), number)));
    }

    /// The state after a step.
    pub fn after(&self, step: &Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::Create(path, mode) => next.add(path, Content::File(Vec::new()), *mode),
            Step::MakeDirectory(path, mode) => next.add(path, Content::Directory, *mode),
            Step::Symlink { target, path } => next.add(path, Content::Symlink(target.clone()), 0o777),
            Step::Write { path, offset, length, fill, .. } => next.change_data(path, |data| {
                let end = (offset + length) as usize;
                data.resize(data.len().max(end), 0);
                data[*offset as usize..end].copy_from_slice(&pattern(*length, *fill));
            }),
            Step::Truncate(path, size) => next.change_data(path, |data| data.resize(*size as usize, 0)),
            Step::Punch { path, offset, length } => next.change_data(path, |data| {
                let end = data.len().min((offset + length) as usize);
                data[*offset as usize..end].fill(0);
            }),
            Step::Rename { from, to, exchange } => {
                let moved = next.take(from);
                if *exchange {
                    let other = next.take(to);
                    next.put(from, other);
                } else {
                    next.remove(to);
                }
                next.put(to, moved);
            }
            Step::Link { from, to } => {
                next.names.insert(to.clone(), next.names[from]);
            }
            Step::Unlink(path) | Step::RemoveDirectory(path) => next.remove(path),
            Step::SetMode(path, mode) => next.change(path, |node| node.mode = *mode),
            Step::SetAttribute { path, name, value } => next.change(path, |node| {
                node.attributes.insert(name.clone(), value.clone());
            }),
            Step::RemoveAttribute { path, name } => next.change(path, |node| {
                node.attributes.remove(name);
            }),
        }
        next
    }
}
