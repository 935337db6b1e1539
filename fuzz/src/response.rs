//! Answers of model providers say the same however they were cut on the way.

use conversation::ResponseReader;

use crate::request::PROTOCOLS;

/// Streams and whole bodies.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/anthropic-messages-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/openai-chat-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/openai-responses-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/gemini-call.sse"),
    include_bytes!("../../crates/conversation/tests/data/gemini-text.json"),
];

/// Whole and in pieces.
pub fn run(bytes: &[u8]) {
    let (rest, pieces) = crate::pieces(bytes);
    for protocol in PROTOCOLS {
        let mut whole = ResponseReader::new(protocol);
        let mut items = whole.push(rest);
        items.extend(whole.finish());
        let mut cut = ResponseReader::new(protocol);
        let mut same: Vec<_> = pieces.iter().flat_map(|piece| cut.push(piece)).collect();
        same.extend(cut.finish());
        assert_eq!(items, same, "{protocol:?}");
    }
}
