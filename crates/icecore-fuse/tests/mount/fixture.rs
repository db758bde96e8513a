//! A pool in a temporary folder, with a dataset that is mounted.

use icecore::admin::{Access, Request, Response, connect_or_open};
use icecore::units::ByteLength;
use icecore::{InitOptions, OpenOptions, Pool};
use icecore_fuse::{MountError, MountOptions, serve};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Whether mounts can be made here. Where they cannot, a test says so and ends.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("left out: a mount needs /dev/fuse and, in these tests, root");
    }
    can
}

/// A mount that lives as long as this.
pub struct Mount {
    pub root: PathBuf,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<Result<(), MountError>>>,
}

impl Mount {
    /// Mounts, in a thread of this process.
    pub fn start(options: MountOptions) -> Result<Self, MountError> {
        let root = options.point.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let wanted = Arc::clone(&stop);
        let server = std::thread::spawn(move || {
            serve(&options, || ready.send(()).unwrap(), || wanted.load(Ordering::SeqCst))
        });
        if is_ready.recv().is_err() {
            server.join().expect("the mount does not panic")?;
            panic!("the mount ended without an error, and was never ready");
        }
        Ok(Self { root, stop, server: Some(server) })
    }

    /// Ends it, and answers how that went.
    pub fn end(mut self) -> Result<(), MountError> {
        self.stop.store(true, Ordering::SeqCst);
        self.server.take().expect("not ended").join().expect("the mount does not panic")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// A pool with the dataset `db`, mounted on a folder beside it.
pub struct Fixture {
    // Dropped in this order.
    pub mount: Option<Mount>,
    pub folder: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with_limit(None)
    }

    pub fn with_limit(size_limit: Option<ByteLength>) -> Self {
        let mut fixture = Self::unmounted(size_limit);
        fixture.mount(Some("db"));
        fixture
    }

    pub fn unmounted(size_limit: Option<ByteLength>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = folder.path().join("pool");
        std::fs::create_dir(folder.path().join("mnt")).unwrap();
        let options = InitOptions { segment_bytes: 2 << 20, size_limit, ..InitOptions::default() };
        Pool::init_directory(&pool, &options).unwrap();
        let open = Pool::open_directory(&pool, &OpenOptions::default()).unwrap();
        open.create_dataset("db", false, &[]).unwrap();
        open.close().unwrap();
        Self { mount: None, folder }
    }

    pub fn pool(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    pub fn options(&self, version: Option<&str>) -> MountOptions {
        MountOptions::new(self.pool(), version.map(str::to_owned), self.folder.path().join("mnt"))
    }

    pub fn mount(&mut self, version: Option<&str>) {
        self.mount = Some(Mount::start(self.options(version)).unwrap());
    }

    pub fn unmount(&mut self) {
        self.mount.take().expect("mounted").end().unwrap();
    }

    /// A path below the mount.
    pub fn path(&self, below: &str) -> PathBuf {
        self.mount.as_ref().expect("mounted").root.join(below)
    }

    /// Another process' way to the pool.
    pub fn access(&self) -> Access {
        let access = connect_or_open(&self.pool(), false).unwrap();
        assert!(access.is_remote(), "the mount owns the pool");
        access
    }

    pub fn ask(&self, request: Request) -> Result<Response, String> {
        self.access().call(request).map_err(|failure| failure.to_string())
    }

    pub fn snapshot(&self, name: &str) {
        let request = Request::Snapshot { names: vec![name.to_owned()], recursive: true, properties: vec![] };
        self.ask(request).unwrap();
    }

    pub fn roll_back(&self, snapshot: &str, force: bool) -> Result<Response, String> {
        self.ask(Request::Rollback { snapshot: snapshot.to_owned(), force })
    }
}

/// The error number of a result that has to be an error.
pub fn number<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.unwrap_err().raw_os_error().unwrap()
}
