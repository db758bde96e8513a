//! What a path means: which pool, which dataset or snapshot, which file in it.
//!
//! `POOL/DATASET[@SNAPSHOT]/FILE`: the pool is the longest leading part that is a directory with a pool in it
//! (or `/@NAME` for a pool that the program registered), the dataset the longest part after it that names
//! one, and the rest a file below the dataset's root.

use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::store::{self, Pool};
use icecore::admin::locate::{Remains, is_pool, remains};
use rustix::io::Errno;
use std::path::Path;

/// What the paths of registered pools begin with.
pub const REGISTERED: &str = "/@";
/// What SQLite appends to a database's name for its rollback journal.
pub const JOURNAL_SUFFIX: &str = "-journal";
/// What SQLite appends to a database's name for its write-ahead log.
pub const WAL_SUFFIX: &str = "-wal";

/// A path cut behind the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut<'path> {
    /// The pool's directory, or `/@NAME`.
    pub pool: &'path str,
    /// What follows, without the slash between.
    pub rest: &'path str,
}

/// A file in a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The dataset's name.
    pub dataset: String,
    /// The snapshot's name without the dataset's; `None` means the head.
    pub snapshot: Option<String>,
    /// Directories below the dataset's root and the file's name.
    pub path: Vec<String>,
}

/// Cuts a full path behind its pool. `None` if no part of it is a pool.
pub fn cut(path: &str) -> Option<Cut<'_>> {
    if path.starts_with(REGISTERED) {
        let slash = path[1..].find('/')? + 1;
        return Some(Cut { pool: &path[..slash], rest: &path[slash + 1..] });
    }
    cuts(path).find(|cut| is_pool(Path::new(cut.pool)).unwrap_or(false))
}

/// The innermost directory of a full path that has what is left of a pool in it, where [`cut`] finds no pool.
pub fn lost_pool(path: &str) -> Option<(&str, Remains)> {
    cuts(path).find_map(|cut| Some((cut.pool, remains(Path::new(cut.pool))?)))
}

/// All ways to cut a path behind a directory, the longest one first.
fn cuts(path: &str) -> impl Iterator<Item = Cut<'_>> {
    path.rmatch_indices('/').map(|(slash, _)| {
        let pool = if slash == 0 { "/" } else { &path[..slash] };
        Cut { pool, rest: &path[slash + 1..] }
    })
}

/// The full path of a file in a pool: the pool's real directory, and what follows without detours. `None` for
/// what lies in no pool.
pub fn full(path: &str) -> Option<String> {
    if path.starts_with(REGISTERED) {
        return Some(path.to_owned());
    }
    let absolute = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", std::env::current_dir().ok()?.to_str()?)
    };
    let Cut { pool, rest } = cut(&absolute)?;
    let mut components = Vec::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            // Out of the pool again: not ours to interpret.
            ".." => drop(components.pop()?),
            part => components.push(part),
        }
    }
    Some(format!("{}/{}", std::fs::canonicalize(pool).ok()?.to_str()?, components.join("/")))
}

impl Place {
    /// Finds dataset and file in what follows the pool. `snapshot` is the URI parameter of that name.
    pub fn find(pool: &Pool, cut: Cut<'_>, snapshot: Option<String>) -> Result<Self> {
        let components: Vec<&str> = cut.rest.split('/').filter(|part| !part.is_empty()).collect();
        let place = match at_snapshot(pool, &components) {
            Some(place) if snapshot.is_some() => {
                let text = format!("{} names a snapshot twice: in the path and with snapshot=", cut.rest);
                drop(place);
                return Err(Fault::new(code::CANTOPEN, text));
            }
            Some(place) => place,
            None => match store::dataset_components(pool, &components) {
                Some(count) => Self {
                    dataset: components[..count].join("/"),
                    snapshot,
                    path: owned(&components[count..]),
                },
                None => {
                    let fault = no_dataset(cut, &components);
                    let is_dataset = pool.dataset(&components.join("/")).is_ok();
                    return Err(if is_dataset { fault.with_errno(Errno::ISDIR) } else { fault });
                }
            },
        };
        Ok(place)
    }

    /// The path below the dataset's root, for calls that take parts.
    pub fn parts(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// The name of the dataset or snapshot.
    pub fn version(&self) -> String {
        match &self.snapshot {
            Some(snapshot) => format!("{}@{snapshot}", self.dataset),
            None => self.dataset.clone(),
        }
    }
}

/// Reads `dataset@snapshot/file`. The last component is the file's name and may contain `@` itself.
fn at_snapshot(pool: &Pool, components: &[&str]) -> Option<Place> {
    let directories = components.len().saturating_sub(1);
    for index in 0..directories {
        let Some((last, snapshot)) = components[index].split_once('@') else { continue };
        let mut names = components[..index].to_vec();
        names.push(last);
        let dataset = names.join("/");
        // A directory of a dataset may have such a name, too.
        if pool.dataset(&dataset).is_ok() {
            let path = owned(&components[index + 1..]);
            return Some(Place { dataset, snapshot: Some(snapshot.to_owned()), path });
        }
    }
    None
}

fn owned(components: &[&str]) -> Vec<String> {
    components.iter().map(|&part| part.to_owned()).collect()
}

fn no_dataset(cut: Cut<'_>, components: &[&str]) -> Fault {
    let pool = cut.pool;
    let text = match components {
        [] | [_] => format!(
            "{pool}/{} names no file in a dataset of pool {pool}: it should look like {pool}/DATASET/FILE",
            cut.rest
        ),
        [dataset, ..] => {
            let dataset = dataset.split('@').next().unwrap_or(dataset);
            format!("pool {pool} has no dataset {dataset}: `icecore create {pool}/{dataset}` makes one")
        }
    };
    Fault::new(code::CANTOPEN, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_behind_the_longest_pool() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let pool = directory.path().join("a/pool");
        std::fs::create_dir_all(&pool).expect("a directory");
        // A process that opens the pool makes the lost twin again.
        std::fs::write(pool.join("superblock.1"), "").expect("a file");
        let pool = pool.canonicalize().expect("a real path");
        let pool = pool.to_str().expect("text");
        let file = format!("{pool}/x/y/z.db");
        assert_eq!(cut(&file), Some(Cut { pool, rest: "x/y/z.db" }));
        assert_eq!(full(&format!("{pool}//x/./q/../y/z.db")).as_deref(), Some(file.as_str()));
        assert_eq!(full(&format!("{pool}/../z.db")), None);
        assert_eq!(cut(&format!("{}/z.db", directory.path().display())), None);
        std::os::unix::fs::symlink(pool, directory.path().join("link")).expect("a link");
        let linked = format!("{}/link/x/y/z.db", directory.path().display());
        assert_eq!(full(&linked).as_deref(), Some(file.as_str()));
    }

    #[test]
    fn registered_pools_have_a_name() {
        assert_eq!(cut("/@sim/ds/app.db"), Some(Cut { pool: "/@sim", rest: "ds/app.db" }));
        assert_eq!(cut("/@sim"), None);
        assert_eq!(full("/@sim/ds/app.db").as_deref(), Some("/@sim/ds/app.db"));
    }
}
