//! A host has one canonical form, and that is canonical.

use net::canonical;

/// Names, addresses, ports.
pub const SEEDS: &[&[u8]] = &[
    b"Example.ORG.",
    b"xn--bcher-kva.example:443",
    b"0x7f.1",
    b"[::ffff:1.2.3.4]:80",
    "b\u{fc}cher.example".as_bytes(),
];

/// Canonical once, canonical twice; alone and with a port.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(host) = canonical::host(text) {
        let again = if host.contains(':') {
            canonical::host(&format!("[{host}]"))
        } else {
            canonical::host(&host)
        };
        assert_eq!(again.as_deref(), Ok(&*host), "{text:?}");
        assert!(
            !host.contains(['/', '?', '#', '@', '%', ' ']),
            "{text:?} became {host:?}"
        );
    }
    if let Ok((host, port)) = canonical::authority(text) {
        assert_ne!(port, Some(0));
        assert!(!host.is_empty());
    }
}
