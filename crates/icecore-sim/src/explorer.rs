//! Lives of a pool on a simulated disk: a history is lived through beside its model, cut short by crashes and
//! faults, found again, and gone on with.

use crate::driver::{Picture, drive, is_durable_on_return};
use crate::model::{FileChange, Generator, History, ModelError, ModelPool, Outcome, Step, Weights};
use crate::{CrashMode, DiskConfig, Random, SimulatedDisk};
use icecore::units::ByteLength;
use icecore::{Clock, CopyMode, DestroyTarget, Error, InitOptions, OpenOptions, Pool};

/// Steps that are kept, to be shown with a failure.
const TRACE_MAX: usize = 12;
/// Characters of each of them.
const TRACE_CHARS_MAX: usize = 240;

/// What kind of pool and history is explored.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The disk.
    pub disk: DiskConfig,
    /// How steps are drawn.
    pub weights: Weights,
    /// How the pool is opened.
    pub options: OpenOptions,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Most bytes that segments take together.
    pub size_limit: Option<u64>,
    /// What is written twice.
    pub copies: CopyMode,
    /// The folder of the copies: any path, it is that of the disk's mirror.
    pub mirror: Option<String>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            disk: DiskConfig { capacity: 256 << 20, stale_garbage: true, ..DiskConfig::default() },
            weights: Weights { checkpoint: 3, collect: 5, sync: 8, ..Weights::default() },
            options: small_options(),
            segment_bytes: 2 << 20,
            size_limit: None,
            copies: CopyMode::None,
            mirror: None,
        }
    }
}

impl Setting {
    /// Draws what a crash cares about: how much is logged between checkpoints, how large writes are, when
    /// groups spill.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5e77);
        let mut setting = Self::default();
        setting.options.log_bytes_max = [1 << 20, 2 << 20, 4 << 20][random.index(3)];
        setting.options.group_memory_bytes = [16 << 10, 64 << 10, 1 << 20][random.index(3)];
        setting.options.dirty_bytes_max = [256 << 10, 4 << 20][random.index(2)];
        setting.weights.write_bytes_max = [8 << 10, 64 << 10, 256 << 10][random.index(3)];
        setting.weights.offset_max = [32 << 10, 512 << 10][random.index(2)];
        setting.weights.group = [5, 20][random.index(2)];
        setting.weights.sync = [2, 8, 20][random.index(3)];
        setting.disk.stale_garbage = random.chance(70);
        setting.options.map_memory_bytes = [0, 0, 1 << 20][random.index(3)];
        setting.options.group_rewrite_bytes = [0, 16 << 10, 1 << 20][random.index(3)];
        setting
    }
}

/// Options under which everything happens in the order of the calls, and often.
#[must_use]
pub fn small_options() -> OpenOptions {
    OpenOptions {
        block_cache_bytes: 512 << 10,
        node_cache_bytes: 64 << 10,
        log_bytes_max: 2 << 20,
        dirty_bytes_max: 1 << 20,
        group_memory_bytes: 64 << 10,
        // Two blocks.
        group_rewrite_bytes: 8 << 10,
        // Chunks of four entries, of which one is in memory.
        map_memory_bytes: 0,
        background: false,
        control_socket: false,
        ..OpenOptions::default()
    }
}

/// How a step ended.
#[derive(Debug)]
pub enum Verdict {
    /// As the model says: done, or refused.
    Agreed,
    /// The crash came that was scheduled.
    Cut,
    /// The store failed where the model does not.
    Failed(Error),
}

/// A pool, its disk and its model.
pub struct Explorer {
    /// The disk, to crash it and make it fail.
    pub disk: SimulatedDisk,
    /// What the pool should be.
    pub history: History,
    generator: Generator,
    options: OpenOptions,
    pool: Option<Pool>,
    recent: Vec<String>,
}

impl Explorer {
    /// Makes a pool on a new disk. It is not open yet.
    ///
    /// # Errors
    /// What the store answers.
    pub fn new(seed: u64, setting: &Setting) -> icecore::Result<Self> {
        let disk = SimulatedDisk::new(seed, setting.disk.clone());
        if setting.mirror.is_some() {
            disk.add_mirror(SimulatedDisk::new(seed ^ 0x3177, setting.disk.clone()));
        }
        let init = InitOptions {
            segment_bytes: setting.segment_bytes,
            size_limit: setting.size_limit.map(ByteLength),
            copies: setting.copies,
            mirror: setting.mirror.clone(),
        };
        Pool::init(disk.storage(), &init)?;
        Ok(Self {
            disk,
            history: History::default(),
            generator: Generator::new(seed, setting.weights.clone()),
            options: OpenOptions { clock: Clock::counting(), ..setting.options.clone() },
            pool: None,
            recent: Vec::new(),
        })
    }

    /// The same life on a second disk, which goes on with luck of its own. The pool is not open there.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        Self {
            disk: self.disk.duplicate(seed),
            history: self.history.clone(),
            generator: self.generator.clone(),
            options: OpenOptions { clock: self.options.clock.fork(), ..self.options.clone() },
            pool: None,
            recent: self.recent.clone(),
        }
    }

    /// The open pool.
    ///
    /// # Panics
    /// If it is not open.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("the pool is open")
    }

    /// Whether the pool is open (closing that failed leaves it closed).
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.pool.is_some()
    }

    /// From now on steps are drawn in another mixture.
    pub fn set_weights(&mut self, weights: Weights) {
        self.generator.set_weights(weights);
    }

    /// The next step is drawn from this seed and mixture, whatever was drawn before.
    pub fn redraw(&mut self, seed: u64, weights: Weights) {
        self.generator.redraw(seed, weights);
    }

    /// The steps done last, for messages.
    #[must_use]
    pub fn recent(&self) -> String {
        self.recent.join("\n  ")
    }

    /// Opens the pool.
    ///
    /// # Errors
    /// What the store answers.
    pub fn open(&mut self) -> icecore::Result<()> {
        self.pool = None;
        self.pool = Some(Pool::open(self.disk.storage(), &self.options)?);
        Ok(())
    }

    /// Lets go of the pool without a word, as a process does that dies: call after the disk has crashed.
    pub fn forget(&mut self) {
        self.pool = None;
    }

    /// Closes the pool.
    ///
    /// # Errors
    /// What the store answers.
    pub fn close(&mut self) -> icecore::Result<()> {
        let outcome = self.pool().close();
        self.pool = None;
        if outcome.is_ok() {
            self.history.acknowledge();
        }
        outcome
    }

    fn reopen(&mut self) -> icecore::Result<Option<String>> {
        self.close()?;
        self.open()?;
        Ok(None)
    }

    /// Draws the next step and does it, in the pool and in the model.
    ///
    /// # Errors
    /// A description, where the two do not agree.
    pub fn step(&mut self) -> Result<Verdict, String> {
        let step = self.generator.next(self.history.current());
        self.perform(step)
    }

    /// Does a step, in the pool and in the model.
    ///
    /// # Errors
    /// A description, where the two do not agree.
    pub fn perform(&mut self, step: Step) -> Result<Verdict, String> {
        let mut model = ModelPool::clone(self.history.current());
        let expected = model.apply(&step);
        let found = if step == Step::Reopen { self.reopen() } else { drive(self.pool(), &step) };
        self.note(&step, &found);
        let cut = self.disk.is_cut();
        match (found, expected) {
            (Ok(name), Ok(outcome)) => {
                if let (Some(name), Outcome::Saved(id)) = (name, outcome) {
                    model.name_automatic(id, name.split('@').nth(1).unwrap_or_default());
                }
                let durable = is_durable_on_return(&step);
                self.history.push(step, model);
                if durable {
                    self.history.acknowledge();
                }
                Ok(Verdict::Agreed)
            }
            (Err(_), Err(_)) if cut => Ok(Verdict::Cut),
            (Err(error), Err(expected)) if is_alike(&step, expected, &error) => Ok(Verdict::Agreed),
            (Err(error), Err(_)) if is_failure(&error) => Ok(Verdict::Failed(error)),
            (Err(error), Ok(_)) if cut || is_failure(&error) => {
                // It may have been done, or not.
                if cut || self.pool.is_none() || self.pool().is_read_only() {
                    self.history.push(step, model);
                }
                Ok(if cut { Verdict::Cut } else { Verdict::Failed(error) })
            }
            (found, expected) => Err(format!(
                "{step:?}: the pool answers {:?}, the model {expected:?}\n  {}",
                found.map_err(|error| error.to_string()),
                self.recent()
            )),
        }
    }

    fn note(&mut self, step: &Step, found: &icecore::Result<Option<String>>) {
        let outcome = found.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        if self.recent.len() == TRACE_MAX {
            self.recent.remove(0);
        }
        let mut text = format!("{step:?}");
        if let Some((cut, _)) = text.char_indices().nth(TRACE_CHARS_MAX) {
            text.truncate(cut);
        }
        self.recent.push(format!("{text}: {outcome}"));
    }

    /// Lives on for so many steps, or until something comes between.
    ///
    /// # Errors
    /// A description, where pool and model do not agree.
    pub fn live(&mut self, steps: usize) -> Result<Verdict, String> {
        for _ in 0..steps {
            let verdict = self.step()?;
            if !matches!(verdict, Verdict::Agreed) {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Agreed)
    }

    /// Verifies the books, and that pool and model are alike.
    ///
    /// # Errors
    /// A description of what is not so.
    pub fn check(&self) -> Result<(), String> {
        let model = self.history.current();
        let picture = Picture::take(self.pool()).map_err(|error| self.describe(&error.to_string()))?;
        if let Some(difference) = picture.difference(model) {
            return Err(self.describe(&difference.to_string()));
        }
        self.pool().verify().map_err(|error| self.describe(&format!("verify: {error}")))
    }

    fn describe(&self, what: &str) -> String {
        format!("{what}\n  {}", self.recent())
    }

    /// The power fails; or, without a mode, only the process dies.
    pub fn crash(&mut self, mode: Option<CrashMode>) {
        match mode {
            Some(mode) => self.disk.crash_as(mode),
            None => {
                // A process that dies takes a scheduled crash with it.
                self.disk.kill();
            }
        }
        self.forget();
    }

    /// Looks what there is after a crash: the books must be right, and it must be a state that may be left.
    /// History goes on from there. The pool must be open.
    ///
    /// # Errors
    /// A description of what is not so.
    pub fn find(&mut self) -> Result<usize, String> {
        let failed = |what: &str, own: &Self| Err(own.describe(what));
        let picture = match Picture::take(self.pool()) {
            Ok(picture) => picture,
            Err(error) => return failed(&format!("cannot read what was found: {error}"), self),
        };
        if let Err(error) = self.pool().verify() {
            return failed(&format!("verify after recovery: {error}"), self);
        }
        match self.history.find(|model| picture.difference(model)) {
            Ok(index) => {
                self.history.resume(index);
                let mut model = ModelPool::clone(self.history.current());
                picture.tell_names(&mut model);
                self.history.amend(model);
                Ok(index)
            }
            Err(differences) => {
                let lines: Vec<String> = differences
                    .iter()
                    .map(|(index, difference)| format!("state {index}: {difference}"))
                    .collect();
                failed(
                    &format!("no state of the model is what was found:\n    {}", lines.join("\n    ")),
                    self,
                )
            }
        }
    }
}

/// Whether the store may answer this where the model says that.
fn is_alike(step: &Step, expected: ModelError, found: &Error) -> bool {
    // Of several names that are wrong, any may be refused first.
    if matches!(step, Step::Snapshot { names, .. } if names.len() > 1) {
        return [ModelError::BadName, ModelError::NotFound, ModelError::Exists]
            .iter()
            .any(|expected| expected.is_like(found));
    }
    // As may either of two paths.
    let two_paths =
        matches!(step, Step::Change { change: FileChange::Rename { .. } | FileChange::Link { .. }, .. });
    if two_paths && matches!(expected, ModelError::File(_)) {
        return matches!(found, Error::File(_));
    }
    // Where the old name is wrong, or the new one is not of its kind, either may be refused first.
    if matches!(step, Step::Rename { .. } | Step::Clone { .. })
        && matches!(expected, ModelError::BadName | ModelError::NotFound | ModelError::Invalid)
    {
        return matches!(found, Error::BadName { .. } | Error::Invalid(_) | Error::NotFound { .. });
    }
    // After promotions a way from one snapshot of a dataset to another may lead through a second dataset: no
    // range, as the store sees it, and something in the way, as the model does.
    if matches!(step, Step::Destroy(DestroyTarget::Range { .. })) && expected == ModelError::Busy {
        return matches!(found, Error::Busy { .. } | Error::Invalid(_));
    }
    // Opening a dataset does not look at the grammar of a name that does not exist.
    let lax = expected == ModelError::BadName
        && matches!(found, Error::NotFound { .. } | Error::SnapshotIsReadOnly { .. });
    lax || expected.is_like(found)
}

/// Whether an error comes from the medium rather than from the request.
fn is_failure(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. }
            | Error::NoSpace { .. }
            | Error::QuotaExceeded { .. }
            | Error::ReadOnlyAfterFailure { .. }
            | Error::Damaged { .. }
    )
}
