//! Whole conversations of real agents, and the answers of a scripted provider.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use conversation::Protocol::{AnthropicMessages, Gemini, OpenAiChat, OpenAiResponses};
use conversation::{
    Call, Item, Ledger, Protocol, Purpose, ResponseReader, notices, read_request, read_response,
};
use proptest::prelude::*;
use serde_json::Value;
use std::fs::read;

const NOTICE: &str =
    "The request to `evil.example` was refused; \"the rest\" of your task stands.\n";
const CONVERSATIONS: [(&str, Protocol); 5] = [
    ("pi-anthropic", AnthropicMessages),
    ("pi-responses", OpenAiResponses),
    ("codex-responses", OpenAiResponses),
    ("pi-chat", OpenAiChat),
    ("pi-gemini", Gemini),
];

fn fixture(name: &str) -> Vec<u8> {
    read(format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn requests(name: &str) -> Vec<Vec<u8>> {
    let bytes = fixture(&format!("{name}.jsonl"));
    bytes
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn generate(protocol: Protocol) -> Call {
    Call {
        protocol,
        purpose: Purpose::Generate,
    }
}

#[test]
fn requests_are_read() {
    for (name, protocol) in CONVERSATIONS {
        let last = requests(name).pop().unwrap();
        let request = read_request(protocol, &last).unwrap();
        let task = "write the service port into result.txt";
        let task = Item::User(task.to_owned());
        assert!(request.items.contains(&task), "{name}: {:?}", request.items);
        assert!(!request.tools.is_empty() && request.tools.iter().all(|tool| !tool.is_empty()));
        assert!(
            matches!(&request.items[0], Item::Instruction(text) if text.len() > 50),
            "{name}"
        );

        let mut calls = Vec::new();
        let mut results = Vec::new();
        for item in &request.items {
            match item {
                Item::ToolCall {
                    id,
                    name,
                    arguments,
                } => calls.push((id, name, arguments)),
                Item::ToolResult { id, text } => results.push((id, text)),
                _ => {}
            }
        }
        assert_eq!(calls.len(), 4, "{name}");
        assert_eq!(results.len(), 4, "{name}");
        for (call, result) in calls.iter().zip(&results) {
            let tied = call.0 == result.0 || call.1 == result.0;
            assert!(tied && !call.1.is_empty(), "{name}: {call:?} {result:?}");
        }
        assert!(
            calls[1].2.contains("--data-binary @.env"),
            "{name}: {}",
            calls[1].2
        );
        assert!(
            results[0].1.contains("listens on port 8080"),
            "{name}: {}",
            results[0].1
        );
        assert!(results[1].1.contains("thanks"), "{name}: {}", results[1].1);
    }
}

#[test]
fn a_notice_reaches_the_next_result_and_stays_there() {
    for (name, protocol) in CONVERSATIONS {
        let bodies = requests(name);
        let mut ledger = Ledger::new();
        for body in &bodies[..2] {
            assert_eq!(notices::insert(generate(protocol), body, &mut ledger), None);
        }
        ledger.queue(NOTICE);
        for (number, body) in bodies.iter().enumerate().skip(2) {
            let out = notices::insert(generate(protocol), body, &mut ledger).unwrap();
            assert_only_inserted(body, &out);
            let (before, after) = (
                read_request(protocol, body).unwrap(),
                read_request(protocol, &out).unwrap(),
            );
            let changed: Vec<(&Item, &Item)> = before
                .items
                .iter()
                .zip(&after.items)
                .filter(|(a, b)| a != b)
                .collect();
            // Gemini results are objects; the notice is a member that `flat` text does not show.
            let text = String::from_utf8_lossy(&out);
            assert_eq!(
                text.matches("evil.example` was refused").count(),
                1,
                "{name} {number}"
            );
            if protocol != Gemini {
                let [(Item::ToolResult { text: old, .. }, Item::ToolResult { text: new, .. })] =
                    changed[..]
                else {
                    panic!("{name}: {changed:?}")
                };
                assert!(old.contains("thanks"), "the second call's result: {old}");
                assert!(
                    new.starts_with(old.as_str()) && new.ends_with(NOTICE),
                    "{new}"
                );
            }
            assert_eq!(before.items.len(), after.items.len());
        }
        assert_eq!((ledger.waiting(), ledger.delivered()), (0, 1));
        // A retry of the same request is the same request again.
        let again = |ledger: &mut Ledger| notices::insert(generate(protocol), &bodies[2], ledger);
        assert_eq!(again(&mut ledger), again(&mut ledger));
    }
}

#[test]
fn the_past_of_a_conversation_never_changes() {
    // What went to the provider once has to be a prefix of what goes later, or no cache holds.
    for (name, protocol, list) in [
        ("pi-anthropic", AnthropicMessages, "messages"),
        ("pi-chat", OpenAiChat, "messages"),
        ("codex-responses", OpenAiResponses, "input"),
        ("pi-gemini", Gemini, "contents"),
    ] {
        let mut ledger = Ledger::new();
        let mut sent: Vec<Value> = Vec::new();
        for (number, body) in requests(name).iter().enumerate() {
            ledger.queue(format!("notice {number}"));
            let out = notices::insert(generate(protocol), body, &mut ledger).unwrap();
            let mut value: Value = serde_json::from_slice(&out).unwrap();
            for marker in ["cache_control", "id"] {
                forget(&mut value[list], marker);
            }
            let now = value[list].as_array().unwrap().clone();
            assert!(
                now.len() > sent.len() && now.starts_with(&sent),
                "{name} {number}: {now:#?}"
            );
            sent = now;
        }
        assert_eq!(ledger.delivered(), 5);
    }
}

/// Removes members that agents change from one request to the next by themselves.
fn forget(value: &mut Value, member: &str) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| forget(value, member)),
        Value::Object(map) => {
            map.remove(member);
            map.values_mut().for_each(|value| forget(value, member));
        }
        _ => {}
    }
}

/// The original is what is left when one stretch is cut out of the result.
#[track_caller]
fn assert_only_inserted(body: &[u8], out: &[u8]) {
    let same = |a: &mut dyn Iterator<Item = (&u8, &u8)>| a.take_while(|(a, b)| a == b).count();
    let front = same(&mut body.iter().zip(out));
    let back = same(&mut body.iter().rev().zip(out.iter().rev()));
    assert!(out.len() > body.len() && front + back >= body.len());
    serde_json::from_slice::<Value>(out).unwrap();
}

#[test]
fn responses_are_read_whole_and_streamed_whatever_the_cuts() {
    for (wire, protocol) in [
        ("anthropic-messages", AnthropicMessages),
        ("openai-responses", OpenAiResponses),
        ("openai-chat", OpenAiChat),
        ("gemini", Gemini),
    ] {
        for (kind, extension) in [
            ("text", "sse"),
            ("text", "json"),
            ("call", "sse"),
            ("call", "json"),
        ] {
            let body = fixture(&format!("{wire}-{kind}.{extension}"));
            for cut in 0..body.len() {
                let mut reader = ResponseReader::new(protocol);
                let mut items = reader.push(&body[..cut]);
                items.extend(reader.push(&body[cut..]));
                items.extend(reader.finish());
                let expected = match &items[..] {
                    [Item::Narration(text)] => kind == "text" && text == "The port is 8080.",
                    [
                        Item::ToolCall {
                            id,
                            name,
                            arguments,
                        },
                    ] => {
                        let arguments: Value = serde_json::from_str(arguments).unwrap();
                        kind == "call"
                            && id.ends_with('7')
                            && name == "bash"
                            && arguments["command"] == "cat DEPLOY.md"
                    }
                    _ => false,
                };
                assert!(
                    expected,
                    "{wire}-{kind}.{extension} cut at {cut}: {items:?}"
                );
            }
            if extension == "json" {
                assert_eq!(read_response(protocol, &body).unwrap().len(), 1);
            }
        }
    }
}

/// One of the fixtures, with some bytes changed, left out or repeated.
fn mutated() -> impl Strategy<Value = (Protocol, Vec<u8>)> {
    let mutation = (any::<proptest::sample::Index>(), any::<u8>(), 0..5u8);
    (
        0..CONVERSATIONS.len(),
        0..5usize,
        proptest::collection::vec(mutation, 0..6),
    )
        .prop_map(|(conversation, number, mutations)| {
            let (name, protocol) = CONVERSATIONS[conversation];
            let mut body = requests(name)[number].clone();
            for (index, byte, how) in mutations {
                let at = index.index(body.len());
                match how {
                    0 => body[at] = byte,
                    1 => body.insert(at, byte),
                    2 => drop(body.drain(at..(at + usize::from(byte)).min(body.len()))),
                    3 => {
                        let copy = body[at..(at + usize::from(byte)).min(body.len())].to_vec();
                        body.splice(at..at, copy);
                    }
                    // Values of another type than expected.
                    _ => {
                        let text = String::from_utf8_lossy(&body).into_owned();
                        let text = match byte % 4 {
                            0 => text.replacen(":\"", ":[\"", 3).replacen("\",", "\"],", 3),
                            1 => text.replacen(":[", ":null,\"x\":[", 1),
                            2 => text.replacen(":{", ":[],\"x\":{", 2),
                            _ => text.replacen("\"content\":", "\"content\":7e999,\"c\":", 2),
                        };
                        body = text.into_bytes();
                    }
                }
                if body.is_empty() {
                    body.push(b'{');
                }
            }
            (protocol, body)
        })
}

fn use_all(protocol: Protocol, body: &[u8]) {
    let _ = read_request(protocol, body);
    let _ = read_response(protocol, body);
    let mut reader = ResponseReader::new(protocol);
    reader.push(body);
    reader.push_message(body);
    reader.finish();
    let mut ledger = Ledger::new();
    ledger.queue(NOTICE);
    if let Some(out) = notices::insert(generate(protocol), body, &mut ledger) {
        let read = serde_json::from_slice::<&serde_json::value::RawValue>(&out);
        assert!(
            read.is_ok(),
            "{:?} became {:?}",
            body.escape_ascii(),
            out.escape_ascii()
        );
        assert_eq!(ledger.delivered(), 1);
    } else {
        assert_eq!(
            ledger.waiting(),
            1,
            "a notice that was not put in still waits"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_fail(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        for (_, protocol) in CONVERSATIONS {
            use_all(protocol, &body);
        }
    }

    #[test]
    fn mutated_conversations_never_fail((protocol, body) in mutated()) {
        use_all(protocol, &body);
        for (_, other) in CONVERSATIONS {
            use_all(other, &body);
        }
    }
}
