//! `targets::policy` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::policy::run(bytes));
