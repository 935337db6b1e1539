//! A notice put into a request leaves it a JSON text, and everything else in it as it was.

use conversation::{Call, Ledger, Purpose, notices};

use crate::request::PROTOCOLS;

/// Requests with and without a place for a notice.
pub const SEEDS: &[&[u8]] = crate::request::SEEDS;

const NOTICE: &str = "a \"notice\" with \\ and \u{7} in it";

/// Puts one in, and takes the length of what was added.
pub fn run(bytes: &[u8]) {
    for protocol in PROTOCOLS {
        for purpose in [Purpose::Generate, Purpose::Count] {
            let mut ledger = Ledger::new();
            ledger.queue(NOTICE);
            let Some(with) = notices::insert(Call { protocol, purpose }, bytes, &mut ledger) else {
                continue;
            };
            assert!(with.len() > bytes.len());
            assert_eq!(ledger.delivered(), 1);
            let said = serde_json::from_slice::<serde_json::Value>(&with);
            if serde_json::from_slice::<serde_json::Value>(bytes).is_ok() {
                let said = said.expect("JSON stays JSON");
                assert!(holds(&said), "{protocol:?}: the notice is not in it");
            }
            let again = notices::insert(Call { protocol, purpose }, bytes, &mut ledger);
            assert_eq!(
                again.as_deref(),
                Some(&*with),
                "the same request gets the same text"
            );
        }
    }
}

fn holds(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains(NOTICE),
        serde_json::Value::Array(items) => items.iter().any(holds),
        serde_json::Value::Object(fields) => fields.values().any(holds),
        _ => false,
    }
}
