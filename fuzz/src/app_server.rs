//! `codex app-server`: a line in either direction says nothing, or what it says; answers are lines of JSON.

use conversation::app_server::{Direction, Message, decline, interrupt, read, steer};

/// A recorded session.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../crates/conversation/tests/data/codex-app-server.jsonl"),
    br#"{"id":"a\"b","method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"ls"}}"#,
    br#"{"method":"turn/start","id":1,"params":{"threadId":"t","input":[{"type":"text","text":"hello"}]}}"#,
];

const TEXT: &str = "a \"correction\" with \\ and \u{7}\nin it";

/// Line by line, both ways.
pub fn run(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let messages = read(direction, line);
            assert!(!messages.is_empty(), "every line is something");
            for message in messages {
                let Message::Approval(approval) = message else {
                    continue;
                };
                assert_eq!(direction, Direction::ToClient, "only the server asks");
                let answers = [
                    decline(&approval),
                    steer("kairos-1", &approval.thread, &approval.turn, TEXT),
                    interrupt("kairos-2", &approval.thread, &approval.turn),
                ];
                for answer in answers {
                    assert!(!answer.contains('\n'), "one line: {answer}");
                    let parsed = serde_json::from_str::<serde_json::Value>(&answer);
                    assert!(parsed.is_ok(), "JSON: {answer}");
                }
            }
        }
    }
}
