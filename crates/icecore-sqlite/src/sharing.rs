//! Pools that are only read, by connections with `mode=ro`. No writer waits for those: another process, or a
//! connection of this one that writes, opens the pool whenever it likes. What was read before that is good.
//! What is read afterwards may be anything, so that each read is followed by the question whether it still
//! counts. A handle whose pool was opened to write finds its file again in the pool as it is now.

use crate::bindings::code;
use crate::database::{Database, Pin, Source};
use crate::errors::{Fault, Result};
use crate::locks::{FileVersion, Level, Pinned};
use crate::opening::Found;
use crate::registry::PATIENCE;
use std::time::Duration;

impl Database {
    /// Goes on in the pool as it is now, if it was opened to write since this handle found it: then true, and
    /// what was read before the call is void.
    ///
    /// # Errors
    /// `SQLITE_BUSY` while another process has the pool. In a read transaction, or of a snapshot,
    /// `SQLITE_BUSY_SNAPSHOT` if what it reads is not there any more.
    pub fn follow_pool(&mut self) -> Result<bool> {
        if !self.pool.pool.is_outdated() {
            return Ok(false);
        }
        self.check_process()?;
        // A command has the pool for a moment. SQLite waits by itself where no transaction is open.
        let patience = if self.pin.is_some() { PATIENCE } else { Duration::ZERO };
        let found = self.request.find(patience);
        let found = found.map_err(|fault| match fault.code {
            _ if fault.is_in_use() => fault.with_code(code::BUSY),
            // Its dataset, its snapshot, or its name.
            code::CANTOPEN if self.pin.is_some() => fault.with_code(code::BUSY_SNAPSHOT),
            _ => fault,
        })?;
        let pin = match self.pin.take() {
            None => None,
            Some(former) => {
                let again = self.pin_again(&found, &former);
                // As it was, for those who give it back.
                let again = again.inspect_err(|_| self.pin = Some(former))?;
                Some(again)
            }
        };
        if let (Source::Head { state, .. }, Some(_)) = (&self.source, &pin) {
            state.release(self.id, self.level, Level::None, self.modes.counted);
        }
        // Versions are counted anew. Where one is pinned, the page cache is of that.
        let now = pin.as_ref().map_or(FileVersion::NONE, |pin| pin.pinned.version);
        self.seen = self.seen.map(|_| now);
        (self.source, self.inode, self.pin, self.pool) = (found.source, found.inode, pin, found.pool);
        Ok(true)
    }

    /// The version that was pinned, in the pool as it is now.
    fn pin_again(&self, found: &Found, former: &Pin) -> Result<Pin> {
        let is_same =
            |pinned: &Pinned| found.inode == self.inode && former.pinned.view.is_same_version(&pinned.view);
        let gone = || {
            let text = format!(
                "another process has written to the pool, and what {} was is not there any more: begin again",
                self.names.database
            );
            Fault::new(code::BUSY_SNAPSHOT, text)
        };
        let (file, state) = match &found.source {
            Source::Fixed { .. } => {
                let pin = found.pin.as_ref().filter(|pin| is_same(&pin.pinned));
                return pin.map(|pin| former.moved_to(pin.pinned.clone())).ok_or_else(gone);
            }
            Source::Head { file, state } => (file, state),
        };
        let pinned = state.share(self.id, self.modes.counted, file)?;
        if is_same(&pinned) {
            return Ok(former.moved_to(pinned));
        }
        state.release(self.id, Level::Shared, Level::None, self.modes.counted);
        Err(gone())
    }
}
