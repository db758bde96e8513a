//! What a client holds of a pool: what lives and dies with a connection, or with a picture of the pool.

use super::failure::{ErrorCode, Failure};
use super::protocol::{Pinned, Request, Response};
use std::collections::BTreeMap;

/// Pins, and whether a file is staged.
#[derive(Default)]
pub(super) struct Held {
    pins: BTreeMap<u32, HeldPin>,
    next_pin: u32,
    staged: bool,
}

/// A pin, under the number that the client knows it by.
struct HeldPin {
    /// Its number there.
    now: u32,
    path: Vec<u8>,
    pinned: Pinned,
}

impl Held {
    pub(super) fn anything(&self) -> bool {
        !self.pins.is_empty() || self.staged
    }

    /// The request as it is understood there.
    pub(super) fn translated(&self, mut request: Request) -> Request {
        if let Some(pin) = pin_of(&mut request)
            && let Some(held) = self.pins.get(pin)
        {
            *pin = held.now;
        }
        request
    }

    /// Follows a request, and answers its outcome as the client is to see it. A failed request to begin
    /// another file, or to make it one, also gives up what is staged.
    pub(super) fn follow(
        &mut self,
        request: &Request,
        outcome: Result<Response, Failure>,
    ) -> Result<Response, Failure> {
        match (request, outcome) {
            (Request::Pin { path }, Ok(Response::Pinned(mut pinned))) => {
                let now = std::mem::replace(&mut pinned.pin, self.next_pin);
                let held = HeldPin { now, path: path.clone(), pinned: pinned.clone() };
                self.pins.insert(self.next_pin, held);
                self.next_pin += 1;
                Ok(Response::Pinned(pinned))
            }
            (Request::Unpin { pin }, outcome) => {
                self.pins.remove(pin);
                outcome
            }
            (Request::BeginImport { .. }, Ok(response)) => {
                self.staged = true;
                Ok(response)
            }
            (Request::BeginImport { .. } | Request::CommitImport { .. }, outcome) => {
                self.staged = false;
                outcome
            }
            (_, outcome) => outcome,
        }
    }

    /// All of it went. Whether the request only lets go of it; an error if it cannot be had again.
    ///
    /// Snapshots never change, so that they can be pinned again.
    pub(super) fn lose(&mut self, request: &Request) -> Result<bool, Failure> {
        let is_last = matches!(request, Request::Unpin { pin }
            if self.pins.len() == 1 && self.pins.contains_key(pin) && !self.staged);
        if is_last {
            *self = Self { next_pin: self.next_pin, ..Self::default() };
        } else if self.staged || self.pins.values().any(|held| !held.pinned.version.contains('@')) {
            return Err(self.give_up());
        }
        Ok(is_last)
    }

    /// Pins again what was pinned; an error if anything is not what it was.
    pub(super) fn regain(
        &mut self,
        mut ask: impl FnMut(Request) -> Result<Response, Failure>,
    ) -> Result<(), Failure> {
        for held in self.pins.values_mut() {
            match ask(Request::Pin { path: held.path.clone() }) {
                Ok(Response::Pinned(found)) if is_same(&found, &held.pinned) => held.now = found.pin,
                _ => return Err(self.give_up()),
            }
        }
        Ok(())
    }

    /// The failure where what was held cannot be had again. It knows nothing of other things that a command
    /// did before, such as directories that it made.
    fn give_up(&mut self) -> Failure {
        let held = std::mem::take(self);
        self.next_pin = held.next_pin;
        let lost = if held.staged { "; nothing of the file was imported" } else { " of reading" };
        let message = format!(
            "the process that had the pool open ended the connection in the middle{lost}: repeat the command"
        );
        Failure::new(ErrorCode::Closing, message)
    }
}

fn is_same(one: &Pinned, other: &Pinned) -> bool {
    (&one.version, &one.file, &one.found) == (&other.version, &other.file, &other.found)
}

/// The pin that a request is about.
const fn pin_of(request: &mut Request) -> Option<&mut u32> {
    match request {
        Request::Find { pin, .. }
        | Request::Unpin { pin }
        | Request::ReadDirectory { pin, .. }
        | Request::ReadFile { pin, .. }
        | Request::ReadLink { pin, .. } => Some(pin),
        _ => None,
    }
}
