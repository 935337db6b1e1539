//! Any sequence of records is folded or refused, and the fold is one that the kernel could have reached.

use std::path::Path;

use kernel::EventId;
use kernel::policy::{NoRules, Policy};
use store::disk::MemoryDisk;
use store::log::Entry;
use store::{Blobs, Record};

/// A proposal, a verdict, a spent permit; content.
pub const SEEDS: &[&[u8]] = &[
    br#"{"record":"header","format":1,"session":"s","workspace":"w","epoch":"","command":[],"started":"","version":""}
{"record":"proposed","event":1,"effect":{"channel":"net","operation":"POST","object":{"party":{"scheme":"https","host":"a.example","port":443,"path":"/"}},"class":"stallable","digest":"0000000000000000000000000000000000000000000000000000000000000000","bytes":1},"nonce":"00000000000000000000000000000001","parked":{"note":""},"decision":"defer","why":[],"manifest":"0000000000000000000000000000000000000000000000000000000000000000"}
{"record":"verdict","event":2,"hold":"h1","manifest":"0000000000000000000000000000000000000000000000000000000000000000","verdict":"refuse","oracle":"o","reason":""}
{"record":"aborted","event":1,"why":"o"}
{"record":"done","event":1,"ok":true,"what":""}"#,
    br#"{"record":"incoming","event":1,"channel":"file","source":{"location":["workspace","a"]},"digest":"0000000000000000000000000000000000000000000000000000000000000000","bytes":1,"kept":true}
{"record":"spent","event":1,"manifest":"","why":""}
{"record":"expired","event":2,"hold":"h1"}
{"record":"withdrawn","event":2,"hold":"h18446744073709551615"}"#,
];

/// One record a line; lines that are none are left out, so that the engine need not find the chain's digests.
pub fn run(bytes: &[u8]) {
    let entries: Vec<Entry> = bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Record>(line).ok())
        .zip(1..)
        .map(|(record, seq)| Entry {
            seq,
            at: String::new(),
            record,
        })
        .collect();
    let blobs = Blobs::open_dir_on(&MemoryDisk::shared(), Path::new("blobs")).unwrap();
    let Ok(recovered) = store::recover(&entries, &blobs, &Policy::default(), &NoRules) else {
        return;
    };
    for hold in recovered.state.holds().iter() {
        let name = hold.question.hold;
        assert!(
            hold.question.depends.iter().all(|on| *on != name),
            "{name} waits for itself"
        );
    }
    for event in &recovered.unknown {
        assert!(recovered.ledger.is_spent(*event));
    }
    for hold in recovered.parked.keys() {
        let open = recovered.state.holds().find(*hold).is_some();
        assert!(
            open || recovered.unknown.contains(&EventId(hold.0)),
            "{hold} is parked for nobody"
        );
    }
}
