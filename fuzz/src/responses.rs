//! OpenAI Responses: requests, answers, notices.

use conversation::Protocol;

/// A call and a text, asked and answered.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/openai-responses-call.json"),
    include_bytes!("../../crates/conversation/tests/data/openai-responses-text.json"),
    include_bytes!("../../crates/conversation/tests/data/openai-responses-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/openai-responses-text.sse"),
    br#"{"type":"response.create","previous_response_id":"r","input":[{"type":"function_call_output","call_id":"c","output":"x"}]}"#,
];

/// What every protocol promises.
pub fn run(bytes: &[u8]) {
    crate::provider::run(Protocol::OpenAiResponses, bytes);
}
