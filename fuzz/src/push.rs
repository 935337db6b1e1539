//! Pushes of git: what is told of them comes from the bytes, and is bounded.

use net::git::Push;

/// A push with a pack of one commit, a deletion, and none at all.
pub const SEEDS: &[&[u8]] = &[
    b"0094\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30 1111111111111111111111111111111111111111 refs/heads/main\0 report-status side-band-64k 0000PACK\0\0\0\x02\0\0\0\x01\x95x\x9c\xcbH\xcd\xc9\xc9\x07\0\x06\x2c\x02\x15",
    b"0066\x31111111111111111111111111111111111111111 0000000000000000000000000000000000000000 refs/tags/old\n0000",
    b"0000",
];

/// Reads, and tells.
pub fn run(bytes: &[u8]) {
    if let Some(push) = Push::read(bytes) {
        assert!(push.commits.len() <= 20);
        assert!(push.commits_in_words().len() <= 20 * (64 << 10) + 1000);
        assert!(push.refs_in_words().len() <= bytes.len() * 3 + 1000);
    }
}
