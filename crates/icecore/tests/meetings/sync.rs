//! The checker's tools under the store's names for them. Their locks are not poisoned, as the store's.

pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use shuttle::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};
pub use shuttle::thread;
use std::ops::{Deref, DerefMut};

const WHOLE: &str = "no thread panics while it is locked";

#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Empty only while a [`Condvar`] has it.
pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(WHOLE)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is not waited with")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is not waited with")
    }
}

#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().map(|guard| self.0.wait(guard).expect(WHOLE));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(WHOLE)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect(WHOLE)
    }
}
