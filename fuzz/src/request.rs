//! Requests to model providers are read or refused; none stops the reader.

use conversation::Protocol;

/// One a protocol.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/anthropic-messages-call.json"),
    include_bytes!("../../crates/conversation/tests/data/openai-chat-call.json"),
    include_bytes!("../../crates/conversation/tests/data/openai-responses-call.json"),
    include_bytes!("../../crates/conversation/tests/data/gemini-call.json"),
    br#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}],"tools":[{"name":"n"}]}"#,
];

/// Every protocol reads the same bytes.
pub fn run(bytes: &[u8]) {
    for protocol in PROTOCOLS {
        let _ = conversation::read_request(protocol, bytes);
    }
}

/// All protocols.
pub(crate) const PROTOCOLS: [Protocol; 4] = [
    Protocol::AnthropicMessages,
    Protocol::OpenAiResponses,
    Protocol::OpenAiChat,
    Protocol::Gemini,
];
