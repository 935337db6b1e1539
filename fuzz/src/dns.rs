//! Every look-up is answered, refused or ignored, and an answer is one that belongs to the question.

/// A question for an address.
pub const SEEDS: &[&[u8]] = &[
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01",
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01a\x07example\x00\x00\x1c\x00\x01\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00",
    b"\x12\x34\x81",
];

/// Answers it.
pub fn run(bytes: &[u8]) {
    if let Some(answer) = net::dns::answer_once(bytes) {
        assert_eq!(
            answer.get(..2),
            bytes.get(..2),
            "the answer has the question's number"
        );
        assert_eq!(answer[2] & 0x80, 0x80, "an answer says that it is one");
    }
}
