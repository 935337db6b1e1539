//! What the reader of every provider's protocol promises: nothing stops it, an answer says the same however it was
//! cut, a notice leaves a request JSON with everything else as it was, and nothing is told twice.

use conversation::{Call, Ledger, Protocol, Purpose, Reader, ResponseReader, notices};

const NOTICE: &str = "a \"notice\" with \\ and \u{7} in it";

/// The same bytes as a request, as an answer, and as both of one session.
pub(crate) fn run(protocol: Protocol, bytes: &[u8]) {
    let read = conversation::read_request(protocol, bytes);
    let generate = Call {
        protocol,
        purpose: Purpose::Generate,
    };
    let mut reader = Reader::new();
    if let Ok(items) = reader.request(generate, bytes) {
        let all = read.expect("the same reader").items;
        assert!(items.len() <= all.len());
        let again = reader.request(generate, bytes).expect("it was read before");
        assert_eq!(again, [], "a request that is sent again says nothing new");
    }
    for purpose in [Purpose::Generate, Purpose::Count] {
        notice(Call { protocol, purpose }, bytes);
    }
    answer(protocol, bytes);
}

fn answer(protocol: Protocol, bytes: &[u8]) {
    let (rest, pieces) = crate::pieces(bytes);
    let mut whole = ResponseReader::new(protocol);
    let mut items = whole.push(rest);
    items.extend(whole.finish());
    let mut cut = ResponseReader::new(protocol);
    let mut same: Vec<_> = pieces.iter().flat_map(|piece| cut.push(piece)).collect();
    same.extend(cut.finish());
    assert_eq!(items, same);
}

fn notice(call: Call, bytes: &[u8]) {
    let mut ledger = Ledger::new();
    ledger.queue(NOTICE);
    let Some(with) = notices::insert(call, bytes, &mut ledger) else {
        return;
    };
    assert!(with.len() > bytes.len());
    assert_eq!(ledger.delivered(), 1);
    let said = serde_json::from_slice::<serde_json::Value>(&with);
    if serde_json::from_slice::<serde_json::Value>(bytes).is_ok() {
        let said = said.expect("JSON stays JSON");
        assert!(holds(&said), "the notice is not in it");
    }
    let again = notices::insert(call, bytes, &mut ledger);
    assert_eq!(
        again.as_deref(),
        Some(&*with),
        "the same request gets the same text"
    );
}

fn holds(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains(NOTICE),
        serde_json::Value::Array(items) => items.iter().any(holds),
        serde_json::Value::Object(fields) => fields.values().any(holds),
        _ => false,
    }
}
