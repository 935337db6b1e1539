//! A policy file is in force as a whole or refused with its places named, whatever it says.

/// The built-in default; a party; a mistake.
pub const SEEDS: &[&[u8]] = &[
    policy::DEFAULT.as_bytes(),
    b"[[party]]\nname = \"registry\"\nhosts = [\"registry.example\"]\nmethods = [\"GET\"]\n",
    b"version = 1\n[[tool]]\nname = 3\n",
];

/// Reads the text as a session's recorded policy, which needs no disk.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let record = serde_json::json!({
        "version": 1,
        "origin": "kairos.toml",
        "workspace": "/w",
        "home": "/h",
        "present": [],
        "policy": text,
        "files": {},
        "default": policy::DEFAULT,
    });
    match policy::recorded(&record.to_string()) {
        Ok(loaded) => {
            let again = policy::recorded(&loaded.text).expect("what was written is read");
            assert_eq!(again.kernel.epoch, loaded.kernel.epoch);
            let _ = loaded.report();
            assert!(!loaded.summary().is_empty());
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}
