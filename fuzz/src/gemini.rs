//! Gemini: requests, answers, notices.

use conversation::Protocol;

/// A call and a text, asked and answered.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/gemini-call.json"),
    include_bytes!("../../crates/conversation/tests/data/gemini-text.json"),
    include_bytes!("../../crates/conversation/tests/data/gemini-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/gemini-text.sse"),
    br#"{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"n","response":{"output":"x"}}}]}],"tools":[{}]}"#,
];

/// What every protocol promises.
pub fn run(bytes: &[u8]) {
    crate::provider::run(Protocol::Gemini, bytes);
}
