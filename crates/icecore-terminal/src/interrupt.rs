//! Ctrl-C, and signals to end, for commands that have something to put in order first.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The signal that came; 0 for none. Nothing else is done where the first signal is taken: that may be in the
/// middle of anything.
static CAUGHT: AtomicI32 = AtomicI32::new(0);
/// When it came, in milliseconds of the clock since the machine started; 0 for not at all.
static CAUGHT_AT: AtomicU64 = AtomicU64::new(0);

/// Signals that come so soon after the first are the same wish: timeout(1) sends one to its child and one to
/// the group of both.
const REPEATED_MS: u64 = 1000;

extern "C" fn note(signal: libc::c_int) {
    let now = now_ms();
    match CAUGHT_AT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => CAUGHT.store(signal, Ordering::Relaxed),
        Err(first) if now.saturating_sub(first) < REPEATED_MS => {}
        Err(_) => raise(signal),
    }
}

/// Milliseconds since the machine started, never 0.
fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place to write a time to. The call may be made in a handler of a signal.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1)
}

/// Ends the program by a signal, unless it is held back; in a handler, when that returns.
fn raise(signal: libc::c_int) {
    // SAFETY: both calls may be made at any moment, also in a handler, and change nothing in memory.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// From now on the first Ctrl-C, Ctrl-\\, SIGTERM, or SIGHUP of a terminal that goes, is only noted: see
/// [`caught`].
/// One that comes a second later or more ends the program as ever. What the caller of the program ignores
/// stays ignored.
pub fn defer() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are whole: zeros are a valid `sigaction`, and the fields that count are
        // set. What the handler does is allowed at any moment: it uses atomics, the clock and `raise`.
        unsafe {
            let mut former: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut former) != 0
                || former.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut wanted: libc::sigaction = std::mem::zeroed();
            wanted.sa_sigaction = note as *const () as libc::sighandler_t;
            wanted.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const wanted, std::ptr::null_mut());
        }
    }
}

/// The signal that came since [`defer`].
pub fn caught() -> Option<i32> {
    Some(CAUGHT.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Ends the program by the signal that came, so that its caller sees that it was one (130 in a shell for
/// Ctrl-C). Everything has to be in order. Answers the exit code to end with where the signal is held back.
pub fn end(signal: i32) -> u8 {
    raise(signal);
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
