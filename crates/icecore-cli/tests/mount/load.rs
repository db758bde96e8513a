//! A benchmark that keeps a server busy.

use crate::server::{Kind, Running};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Child;

/// A benchmark that runs. Killed when dropped.
pub struct Load {
    child: Child,
    log: PathBuf,
}

impl Load {
    /// Begins, on tables that [`Kind::prepare_load`] has made.
    pub fn start(kind: &dyn Kind, server: &Running<'_>) -> Self {
        let log = server.sockets.path().join("load.log");
        let output = File::create(&log).unwrap();
        let mut command = server.as_its_user(kind.load(server.sockets.path()));
        let child =
            command.stdout(output.try_clone().unwrap()).stderr(output).process_group(0).spawn().unwrap();
        Self { child, log }
    }

    /// Ends it; it must have been running until now.
    pub fn stop(mut self) {
        let ended = self.child.try_wait().unwrap();
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(ended.is_none(), "the load has ended by itself ({ended:?}): {said}");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}
