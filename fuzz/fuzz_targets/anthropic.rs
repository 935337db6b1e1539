//! `targets::anthropic` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::anthropic::run(bytes));
