//! The allocator of the program. The library and the SQLite extension leave it to their host.
//!
//! The caches of a pool are filled by one thread and emptied by another, and buffers of a MiB pass between
//! them. glibc has a heap for each thread, and what others free in it leaves holes: a pool at work for hours
//! kept more memory in holes than in its caches. With one heap for all threads they waited for its lock, and
//! a writer beside eight readers was a third as fast.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
