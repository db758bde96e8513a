//! Which pool a command means, and what in it.
//!
//! A name that begins with `/`, `./` or `../` is a path that leads into a pool. Any other name is one in the
//! pool that `-P` or `ICECORE_POOL` gives; with neither, it is a path too. `ICECORE_POOL` is set for a whole
//! shell, so a relative path that leads through the folder of a pool (`pool/db`) goes before it, and not
//! before `-P`.

use crate::exit;
use crate::locate::split_at_pool;
use icecore::Error;
use icecore::admin::locate::{is_pool, remains, was_pool};
use icecore::admin::{Access, ErrorCode, Failure};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What all commands need to know.
pub struct Context {
    /// The pool from `-P` or `ICECORE_POOL`.
    pub pool: Option<PathBuf>,
    /// Whether the pool is from `ICECORE_POOL`.
    pub is_of_shell: bool,
}

/// A pool, and the rest of a name: a dataset, a snapshot, or a path into one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    pub pool: PathBuf,
    pub rest: Vec<u8>,
}

impl Context {
    /// With the pool of the command line, which has that of `ICECORE_POOL` where there is no `-P`. An empty
    /// one is none.
    pub fn new(pool: Option<PathBuf>) -> Self {
        let pool = pool.filter(|pool| !pool.as_os_str().is_empty());
        let is_of_shell =
            pool.as_ref().map(|pool| pool.as_os_str()) == std::env::var_os("ICECORE_POOL").as_deref();
        Self { pool, is_of_shell }
    }

    /// Where an argument leads.
    pub fn locate(&self, argument: &OsStr) -> anyhow::Result<Location> {
        if self.is_of_shell
            && argument.as_bytes().contains(&b'/')
            && let Ok((pool, rest)) = split_at_pool(Path::new(argument))
            // The current folder is on the way of every relative path.
            && (is_path(argument.as_bytes()) || pool != Path::new("."))
        {
            return Ok(Location { pool, rest });
        }
        match &self.pool {
            Some(pool) if !is_path(argument.as_bytes()) => {
                Ok(Location { pool: pool.clone(), rest: argument.as_bytes().to_vec() })
            }
            _ => split_at_pool(Path::new(argument))
                .map(|(pool, rest)| Location { pool, rest })
                .map_err(|error| self.explained(argument, error.into())),
        }
    }

    /// Without any pool given, a bare name that leads to none deserves more than "not a pool".
    fn explained(&self, argument: &OsStr, failure: Failure) -> anyhow::Error {
        if failure.code != ErrorCode::NotAPool {
            return failure.into();
        }
        let shown = crate::format::escaped(argument.as_bytes());
        let rest = |folder: &Path| remains(folder).map(|remains| (folder.to_owned(), remains));
        let message = if let Some((folder, remains)) = Path::new(argument).ancestors().find_map(rest) {
            format!("{} {}", crate::format::escaped(folder.as_os_str().as_bytes()), remains.advice())
        } else if is_path(argument.as_bytes()) {
            format!("{shown} does not lead into a pool: `icecore init FOLDER` makes one")
        } else {
            format!(
                "no pool is given, and {shown} does not lead into one: use -P FOLDER, ICECORE_POOL, or FOLDER/{shown}"
            )
        };
        Failure::new(ErrorCode::NotAPool, message).into()
    }

    /// Names of datasets or snapshots, all in one pool.
    pub fn names<S: AsRef<OsStr>>(&self, arguments: &[S]) -> anyhow::Result<(PathBuf, Vec<String>)> {
        let mut pool: Option<PathBuf> = None;
        let mut names = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let location = self.locate(argument.as_ref())?;
            let pool = pool.get_or_insert_with(|| location.pool.clone());
            if *pool != location.pool {
                let (one, other) = (pool.display(), location.pool.display());
                return Err(exit::usage(format!(
                    "one command works on one pool, and these are two: {one} and {other}"
                )));
            }
            names.push(location.name()?);
        }
        let pool = pool.ok_or_else(|| exit::usage("a name is missing"))?;
        Ok((pool, names))
    }

    /// One name of a dataset or snapshot.
    pub fn name(&self, argument: &OsStr) -> anyhow::Result<(PathBuf, String)> {
        let location = self.locate(argument)?;
        let name = location.name()?;
        Ok((location.pool, name))
    }

    /// The pool itself, for commands that need no name: `-P`, `ICECORE_POOL`, or the folder we are in.
    pub fn pool(&self) -> anyhow::Result<PathBuf> {
        if let Some(pool) = &self.pool {
            return Ok(pool.clone());
        }
        if matches!(is_pool(Path::new(".")), Ok(true)) {
            return Ok(PathBuf::from("."));
        }
        let message = "no pool is given: use -P FOLDER or ICECORE_POOL";
        Err(Failure::new(ErrorCode::NotAPool, message).into())
    }

    /// As [`Context::pool_or`], of a pool that need not be found by its superblocks: where they are lost, it
    /// is the folder as it is given.
    pub fn lost_pool_or(&self, argument: Option<&OsStr>) -> anyhow::Result<PathBuf> {
        match argument.map(Path::new) {
            Some(folder) if was_pool(folder) => Ok(folder.to_owned()),
            _ => self.pool_or(argument),
        }
    }

    /// The pool of a command that may be given one as its only argument.
    pub fn pool_or(&self, argument: Option<&OsStr>) -> anyhow::Result<PathBuf> {
        let Some(argument) = argument else { return self.pool() };
        let location = split_at_pool(Path::new(argument)).map_err(|error| {
            // Without the permission to look, what is there is unknown.
            let known = matches!(error, Error::NotAPool { .. }).then(|| no_pool(Path::new(argument)));
            known.flatten().unwrap_or_else(|| self.explained(argument, error.into()))
        })?;
        if location.1.is_empty() {
            return Ok(location.0);
        }
        Err(exit::usage(format!(
            "{} is something in a pool, and a pool is meant",
            Path::new(argument).display()
        )))
    }
}

/// What is where a pool is meant, if it is known, and what to do about it.
fn no_pool(folder: &Path) -> Option<anyhow::Error> {
    let shown = crate::format::escaped(folder.as_os_str().as_bytes());
    let what = match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => "it is a file: name the folder that `icecore init` made".to_owned(),
        Ok(_) if remains(folder).is_some() => return None,
        Ok(_) => format!(
            "there is no superblock in that folder (is its filesystem mounted?): name another one, or make one \
             with `icecore init {shown}`"
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no such folder: name another one, or make a pool with `icecore init {shown}`")
        }
        Err(_) => return None,
    };
    Some(Failure::new(ErrorCode::NotAPool, format!("{shown} is not a pool: {what}")).into())
}

impl Location {
    /// The rest, as a name that is not empty. Whether it is well formed is for the pool to say.
    pub fn name(&self) -> anyhow::Result<String> {
        if self.rest.is_empty() {
            let pool = self.pool.display();
            return Err(exit::usage(format!("{pool} is a pool: name a dataset in it, {pool}/DATASET")));
        }
        String::from_utf8(self.rest.clone()).map_err(|_| {
            let name = crate::format::escaped(&self.rest);
            Failure::new(ErrorCode::BadName, format!("{name} is not a usable name: it is not UTF-8")).into()
        })
    }

    /// The rest as a path to a file, which needs a dataset at least.
    pub fn path(&self) -> anyhow::Result<&[u8]> {
        if self.rest.is_empty() {
            let pool = self.pool.display();
            return Err(exit::usage(format!(
                "{pool} is a pool, and files are in its datasets: `icecore list {pool}` shows them"
            )));
        }
        Ok(&self.rest)
    }
}

fn is_path(argument: &[u8]) -> bool {
    argument == b"."
        || argument == b".."
        || [&b"/"[..], b"./", b"../"].iter().any(|start| argument.starts_with(start))
}

/// For commands that change nothing. Says so where the owner hangs, and what is read may be old.
pub fn open_to_read(pool: &Path) -> anyhow::Result<Access> {
    let access = icecore::admin::connect_or_open(pool, true).map_err(|failure| not_opened(pool, failure))?;
    warn_if_stale(&access);
    Ok(access)
}

/// Says that the owner hangs, and marks the document that this command prints.
pub fn warn_if_stale(access: &Access) {
    if let Some(stale) = access.stale() {
        let _ = writeln!(std::io::stderr().lock(), "icecore: {stale}");
        crate::output::mark_stale(stale);
    }
}

/// For commands that change something.
pub fn open_to_write(pool: &Path) -> anyhow::Result<Access> {
    icecore::admin::connect_or_open(pool, false).map_err(|failure| not_opened(pool, failure))
}

/// How errors of the system say EACCES: a failure that came through a socket has no more of it than words.
const NOT_PERMITTED: &str = "(os error 13)";

/// What there is to do about a pool that cannot be opened, where it is known.
pub fn not_opened(pool: &Path, failure: Failure) -> anyhow::Error {
    let is_of_disk = matches!(failure.code, ErrorCode::Damaged | ErrorCode::DiskError);
    if failure.code == ErrorCode::Io && failure.message.contains(NOT_PERMITTED) {
        let name = crate::format::escaped(pool.as_os_str().as_bytes());
        let message =
            format!("{} in pool {name}: run it as the user who owns the pool, or as root", failure.message);
        return Failure::new(failure.code, message).into();
    }
    if !is_of_disk || failure.message.contains("icecore check") {
        return failure.into();
    }
    let next = crate::format::escaped(pool.as_os_str().as_bytes());
    let message = format!("{}; the pool cannot be opened: run `icecore check {next}`", failure.message);
    Failure::new(failure.code, message).into()
}

/// For commands that work on for long and write only where they may: as the owner, who lets others in
/// meanwhile. Where that cannot be, the pool is only read, and the second value says why.
pub fn open_to_tend(pool: &Path) -> anyhow::Result<(Access, Option<Failure>)> {
    let refused = match icecore::admin::connect_or_open(pool, false) {
        Ok(access) => return Ok((access, None)),
        Err(failure) => failure,
    };
    match icecore::admin::connect_or_open(pool, true) {
        Ok(access) => Ok((access, Some(refused))),
        Err(_) => Err(not_opened(pool, refused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(pool: Option<&str>) -> Context {
        Context { pool: pool.map(PathBuf::from), is_of_shell: false }
    }

    #[test]
    fn names_belong_to_the_pool_that_is_given() {
        let location = context(Some("/pool")).locate(OsStr::new("a/b@x")).unwrap();
        assert_eq!(location, Location { pool: "/pool".into(), rest: b"a/b@x".to_vec() });
        let (pool, names) = context(Some("/pool")).names(&["a@x", "b"]).unwrap();
        assert_eq!((pool, names), (PathBuf::from("/pool"), vec!["a@x".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn paths_lead_to_their_own_pool_whatever_is_given() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("superblock.0"), b"").unwrap();
        let inside = folder.path().join("db@x");
        let location = context(Some("/pool")).locate(inside.as_os_str()).unwrap();
        assert_eq!(location, Location { pool: folder.path().into(), rest: b"db@x".to_vec() });
    }

    #[test]
    fn relative_paths_through_a_pool_go_before_that_of_the_shell() {
        // Relative to the folder that the tests run in.
        let folder = tempfile::tempdir_in(".").unwrap();
        std::fs::write(folder.path().join("superblock.0"), b"").unwrap();
        let pool = Path::new(folder.path().file_name().unwrap());
        let of_shell = Context { is_of_shell: true, ..context(Some("/pool")) };
        let inside = Location { pool: pool.to_owned(), rest: b"db@x".to_vec() };
        assert_eq!(of_shell.locate(pool.join("db@x").as_os_str()).unwrap(), inside);
        // A bare name is one in the pool, and -P is meant for all names.
        for name in [pool.as_os_str(), OsStr::new("team/db")] {
            let location = of_shell.locate(name).unwrap();
            assert_eq!(
                (location.pool.as_path(), location.rest.as_slice()),
                (Path::new("/pool"), name.as_bytes())
            );
        }
        assert_eq!(
            context(Some("/pool")).locate(pool.join("db").as_os_str()).unwrap().pool,
            Path::new("/pool")
        );
    }

    #[test]
    fn without_a_pool_the_error_tells_the_ways_to_give_one() {
        let error = context(None).locate(OsStr::new("tank/db")).unwrap_err();
        assert!(error.to_string().contains("ICECORE_POOL"), "{error}");
        let error = context(None).locate(OsStr::new("/no/such/db")).unwrap_err();
        assert!(error.to_string().contains("icecore init"), "{error}");
        let lost = tempfile::tempdir().unwrap();
        std::fs::write(lost.path().join("segment.00000000"), b"").unwrap();
        let error = context(None).locate(lost.path().as_os_str()).unwrap_err();
        assert!(!error.to_string().contains("icecore init"), "{error}");
        assert_eq!(context(None).lost_pool_or(Some(lost.path().as_os_str())).unwrap(), lost.path());
    }

    #[test]
    fn a_pool_that_is_damaged_is_to_be_checked() {
        let message =
            |code, message: &str| not_opened(Path::new("/srv/pool"), Failure::new(code, message)).to_string();
        for code in [ErrorCode::Damaged, ErrorCode::DiskError] {
            assert!(message(code, "so it is").ends_with("run `icecore check /srv/pool`"));
            assert_eq!(
                message(code, "so it is: `icecore check --repair`"),
                "so it is: `icecore check --repair`"
            );
        }
        assert_eq!(message(ErrorCode::PoolInUse, "in use"), "in use");
    }

    #[test]
    fn a_pool_alone_is_no_name() {
        let location = Location { pool: "/pool".into(), rest: vec![] };
        assert!(location.name().unwrap_err().to_string().contains("/pool/DATASET"));
        assert!(location.path().is_err());
        let odd = Location { pool: "/pool".into(), rest: b"a\xff".to_vec() };
        assert!(odd.name().unwrap_err().to_string().contains("a\\377"));
    }
}
