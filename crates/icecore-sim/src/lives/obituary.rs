//! What is reported of a life that failed: with threads, its seed need not lead there again.

use super::Life;
use std::fmt::Write as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Incidents that are reported.
const INCIDENTS_MAX: usize = 12;
/// I/Os that are reported.
const TRACE_MAX: usize = 40;

/// Does something, with a panic as a description.
pub(super) fn guarded<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

impl Life {
    /// Why it failed, and what there was. `keep`: the folder for the files of the pool, and what to call
    /// them.
    pub(super) fn obituary(&mut self, why: &str, keep: Option<(&Path, u64)>) -> String {
        let mut text = why.to_owned();
        let threads = if self.setting.options.background { "with" } else { "without" };
        let _ =
            write!(text, "\na life {threads} threads, with {:?}\nuntil then: {}", self.setting, self.deeds);
        let _ = write!(text, "\nits last steps:\n  {}", self.explorer.recent());
        if !self.rotten.is_empty() {
            let _ =
                write!(text, "\ndamaged on purpose, where there are two:\n  {}", self.rotten.join("\n  "));
        }
        // It may be in any state.
        let pool = guarded(|| Ok(self.tell_pool()));
        text += &pool.unwrap_or_else(|panic| format!("\nof the pool nothing can be said: {panic}"));
        let trace = self.explorer.disk.take_trace();
        let last = trace.get(trace.len().saturating_sub(TRACE_MAX)..).unwrap_or_default();
        if !last.is_empty() {
            let _ = write!(text, "\nits last I/Os:\n  {}", last.join("\n  "));
        }
        if let Some((keep, seed)) = keep {
            let folder = keep.join(seed.to_string());
            match self.keep(&folder, &trace) {
                Ok(()) => {
                    let _ = write!(text, "\nthe files of the pool are in {}", folder.display());
                }
                Err(error) => {
                    let _ = write!(
                        text,
                        "\nthe files of the pool cannot be kept in {}: {error}",
                        folder.display()
                    );
                }
            }
        }
        text
    }

    fn tell_pool(&self) -> String {
        if !self.explorer.is_open() {
            return "\nthe pool is not open".to_owned();
        }
        let mut text = format!("\n{:?}", self.explorer.pool().statistics());
        let incidents = self.explorer.pool().incidents();
        for incident in incidents.iter().skip(incidents.len().saturating_sub(INCIDENTS_MAX)) {
            let _ = write!(text, "\n  {incident:?}");
        }
        text
    }

    /// Writes what programs see of the disks at this moment to real files, with what was written beside them.
    fn keep(&self, folder: &Path, trace: &[String]) -> io::Result<()> {
        let disks = [("pool", Some(self.explorer.disk.clone())), ("mirror", self.explorer.disk.mirror())];
        for (name, disk) in disks {
            let Some(disk) = disk else { continue };
            let inner: PathBuf = folder.join(name);
            std::fs::create_dir_all(&inner)?;
            for (file, _) in disk.files() {
                std::fs::write(inner.join(&file), disk.contents(&file)?)?;
            }
        }
        if let Some(beside) = &self.folder {
            for entry in std::fs::read_dir(beside.path())? {
                let entry = entry?;
                std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
        std::fs::write(folder.join("trace.txt"), trace.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explorer::Setting;
    use crate::model::Step;
    use icecore::{CopyMode, OpenOptions, Pool};

    #[test]
    fn what_is_kept_of_a_life_is_its_pool() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = Some("/there is no such folder".to_owned());
        let mut setting = Setting { copies: CopyMode::Metadata, mirror, ..Setting::default() };
        setting.options.background = true;
        setting.disk.trace = true;
        let mut life = Life::new(3, setting).unwrap();
        life.perform(Step::CreateDataset { name: "kept".to_owned(), parents: false }).unwrap();
        let text = life.obituary("it went wrong", Some((folder.path(), 3)));
        for part in ["it went wrong", "with threads", "CreateDataset", "its last I/Os", "sync"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let copies = std::fs::read_dir(folder.path().join("3/mirror")).unwrap().count();
        assert!(copies > 0 && folder.path().join("3/trace.txt").exists());
        let options = OpenOptions { control_socket: false, ..OpenOptions::default() };
        let pool = Pool::open_directory(&folder.path().join("3/pool"), &options).unwrap();
        pool.dataset("kept").unwrap();
    }
}
