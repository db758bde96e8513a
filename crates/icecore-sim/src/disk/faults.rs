//! Faults on demand: the n-th call of a kind fails.

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// A read fails.
    ReadError,
    /// A write fails, any part of it done; or a creation, removal or renaming, nothing done.
    WriteError,
    /// A flush of a file or of the directory fails. What it was to flush survives in part, and no later flush
    /// brings the rest back: the kernel has marked those pages clean.
    SyncError,
    /// A creation, or a write that needs space (all of them where overwriting does), finds the medium full.
    NoSpace,
}

/// The calls that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Read,
    Write { needs_space: bool },
    Create,
    Remove,
    Rename,
    Sync,
    SyncDirectory,
}

impl FaultKind {
    fn concerns(self, operation: Operation) -> bool {
        match self {
            Self::ReadError => operation == Operation::Read,
            Self::WriteError => matches!(
                operation,
                Operation::Write { .. } | Operation::Create | Operation::Remove | Operation::Rename
            ),
            Self::SyncError => matches!(operation, Operation::Sync | Operation::SyncDirectory),
            Self::NoSpace => matches!(operation, Operation::Write { needs_space: true } | Operation::Create),
        }
    }
}

/// The faults to come.
#[derive(Default)]
pub(super) struct Faults {
    scheduled: Vec<Fault>,
    struck: u64,
}

struct Fault {
    kind: FaultKind,
    /// Calls that still pass.
    passes: u64,
    persistent: bool,
}

impl Faults {
    pub(super) fn schedule(&mut self, number: u64, kind: FaultKind, persistent: bool) {
        assert!(number > 0, "the first call is number 1");
        self.scheduled.push(Fault { kind, passes: number - 1, persistent });
    }

    pub(super) fn clear(&mut self) {
        self.scheduled.clear();
    }

    pub(super) const fn struck(&self) -> u64 {
        self.struck
    }

    /// Counts one call, and says what makes it fail.
    pub(super) fn strike(&mut self, operation: Operation) -> Option<FaultKind> {
        let mut struck = None;
        self.scheduled.retain_mut(|fault| {
            if !fault.kind.concerns(operation) {
                return true;
            }
            if let Some(fewer) = fault.passes.checked_sub(1) {
                fault.passes = fewer;
                return true;
            }
            struck = Some(fault.kind);
            fault.persistent
        });
        self.struck += u64::from(struck.is_some());
        struck
    }
}
