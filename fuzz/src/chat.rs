//! Chat Completions: requests, answers, notices.

use conversation::Protocol;

/// A call and a text, asked and answered.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/openai-chat-call.json"),
    include_bytes!("../../crates/conversation/tests/data/openai-chat-text.json"),
    include_bytes!("../../crates/conversation/tests/data/openai-chat-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/openai-chat-text.sse"),
    br#"{"messages":[{"role":"tool","tool_call_id":"t","content":"x"}],"tools":[{"type":"function","function":{"name":"n"}}]}"#,
];

/// What every protocol promises.
pub fn run(bytes: &[u8]) {
    crate::provider::run(Protocol::OpenAiChat, bytes);
}
