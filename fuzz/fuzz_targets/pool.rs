#![no_main]

use std::sync::Once;

static QUIET: Once = Once::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // The fuzzer would take a panic for a finding that a check catches; one that nothing catches still is.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|said| eprintln!("{said}"))));
    icecore_fuzz::pool::pool(data);
});
