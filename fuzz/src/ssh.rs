//! A key exchange of SSH is read whatever its two sides say, and never passes without a host key that was named.

/// Both sides' versions and first messages.
pub const SEEDS: &[&[u8]] = &[
    b"\x2aSSH-2.0-x\r\n\0\0\0\x1b\x04\x140123456789abcdef\0\0\0\x01a\0\0\0\0SSH-2.0-y\r\n\0\0\0\x1b\x04\x140123456789abcdef\0\0\0\x01a\0\0\0\0",
    b"\x0bSSH-2.0-x\r\nbanner\r\nSSH-1.99-y\r\n\0\0\0\x0c\x04\x1f\0\0\0\x02xy\0\0\0\0",
    b"\x04SSH-SSH-1.5-y\n",
];

/// The first byte says how much of the rest is the client's.
pub fn run(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let (client, server) = rest.split_at(usize::from(*first).min(rest.len()));
    assert!(!net::ssh::any_exchange(client, server), "no key was named");
}
