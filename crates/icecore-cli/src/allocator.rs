//! How the C library keeps memory that was freed.
//!
//! glibc gives threads heaps of their own, up to eight for each core, and what is freed in one of them serves only those who use it.
//! The caches of a pool are filled by one thread and emptied by another, and buffers of a MiB pass between them: a pool that
//! worked for hours kept more memory in such holes than in its caches. Only whole programs may decide on this: the library leaves it to
//! its host.

/// Heaps that threads share. With two, what one thread took and another freed already left as many holes as fill a cache, and more
/// of them with every hour.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: libc::c_int = 1;

/// Has threads share heaps, unless the environment says how it shall be. Has to come before the first other thread.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn share_heaps() {
    let is_decided =
        ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_decided {
        // SAFETY: `mallopt` takes two numbers, and sets a limit that only later requests for another heap look at; no memory
        // that was given out is touched. There is no other thread yet. Where it refuses, all stays as it is.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, HEAPS) };
    }
}

/// Other C libraries do not keep a heap for each thread.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn share_heaps() {}
