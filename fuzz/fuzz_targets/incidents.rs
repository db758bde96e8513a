#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| icecore_fuzz::parsers::incidents(data));
