//! Ctrl-C, and signals to end, for commands that have something to put in order first.

use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that came; 0 for none. Nothing else is done where a signal is taken: that may be in the middle
/// of anything.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

/// From now on the first Ctrl-C, SIGTERM, or SIGHUP of a terminal that goes, is only noted: see [`caught`].
/// The second one ends the program as ever. What the caller of the program ignores stays ignored.
pub fn defer() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are whole: zeros are a valid `sigaction`, and the fields that count are
        // set. The handler only stores to an atomic, which is allowed at any moment.
        unsafe {
            let mut former: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut former) != 0
                || former.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut wanted: libc::sigaction = std::mem::zeroed();
            wanted.sa_sigaction = note as *const () as libc::sighandler_t;
            wanted.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
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
    // SAFETY: a signal to this process; what it does then is the default, since handlers of `defer` serve
    // once.
    unsafe { libc::raise(signal) };
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
