//! `targets::ssh` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::ssh::run(bytes));
