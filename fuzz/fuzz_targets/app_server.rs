//! `targets::app_server` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::app_server::run(bytes));
