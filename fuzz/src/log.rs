//! A log is read whole, refused, or cut at its torn end; what was read can be gone on with.

use std::path::Path;

use store::disk::{Disk as _, MemoryDisk};
use store::{Log, Record};

/// Two whole lines; a torn one.
pub const SEEDS: &[&[u8]] = &[
    br#"{"seq":1,"at":"t","prev":"0000000000000000000000000000000000000000000000000000000000000000","body":{"record":"note","what":"a","facts":{}}}
"#,
    br#"{"seq":1,"at":"t","prev":"0000000000000000000000000000000000000000000000000000000000000000","body":{"record":"note","what":"a"}}
{"seq":2,"#,
];

/// Reads, resumes, appends, reads again.
pub fn run(bytes: &[u8]) {
    let path = Path::new("log");
    let disk = MemoryDisk::default();
    disk.create(path).unwrap().write_all(bytes).unwrap();
    let shared: std::sync::Arc<dyn store::Disk> = std::sync::Arc::new(disk.clone());
    let read = store::log::read_from(bytes, path);
    let Ok(reading) = read else {
        assert!(Log::resume_on(&shared, path, || "t".into()).is_err());
        assert_eq!(
            disk.bytes(path).unwrap(),
            bytes,
            "a broken log is left as it is"
        );
        return;
    };
    let (mut log, entries) = Log::resume_on(&shared, path, || "t".into()).unwrap();
    assert_eq!(entries.len(), reading.entries.len());
    log.append(&Record::Note {
        what: "on".into(),
        facts: Default::default(),
    })
    .unwrap();
    let again = store::log::read_on(&disk, path).unwrap();
    assert_eq!(again.entries.len(), entries.len() + 1);
    assert_eq!(again.torn_bytes, 0);
    assert!(
        disk.bytes(path)
            .unwrap()
            .starts_with(&bytes[..bytes.len() - reading.torn_bytes as usize])
    );
}
