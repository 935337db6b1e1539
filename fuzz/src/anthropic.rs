//! Anthropic Messages: requests, answers, notices.

use conversation::Protocol;

/// A call and a text, asked and answered.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/anthropic-messages-call.json"),
    include_bytes!("../../crates/conversation/tests/data/anthropic-messages-text.json"),
    include_bytes!("../../crates/conversation/tests/data/anthropic-messages-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/anthropic-messages-text.sse"),
    br#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}],"tools":[{"name":"n"}]}"#,
];

/// What every protocol promises.
pub fn run(bytes: &[u8]) {
    crate::provider::run(Protocol::AnthropicMessages, bytes);
}
