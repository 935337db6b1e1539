//! `codex app-server`: JSON-RPC over standard input and output, one message a line, with ids of
//! their own in either direction.

use crate::item::Item;
use crate::json::{self, child, flat, objects, text, text_or_empty};
use serde_json::{Map, Value};

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the editor to the server.
    ToServer,
    /// From the server to the editor.
    ToClient,
}

/// What a message means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A piece of the conversation.
    Item(Item),
    /// The server waits before it does something.
    Approval(Approval),
    /// A turn began.
    TurnStarted {
        /// The thread.
        thread: String,
        /// The turn.
        turn: String,
    },
    /// A turn is over: `completed`, `interrupted`, `failed`.
    TurnEnded {
        /// The turn.
        turn: String,
        /// How.
        status: String,
    },
    /// An answer to a request of the other side.
    Answer {
        /// The request's id as JSON text.
        id: String,
    },
    /// Anything else: settings, usage, deltas, and what came later than this reader.
    Other,
}

/// A request for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The request's id as JSON text; the answer has to repeat it.
    pub id: String,
    /// The thread.
    pub thread: String,
    /// The turn.
    pub turn: String,
    /// The item it is about.
    pub item: String,
    /// The command, or an empty text.
    pub command: String,
}

/// Reads one line.
#[must_use]
pub fn read(direction: Direction, line: &[u8]) -> Vec<Message> {
    let Ok(Value::Object(message)) = json::parse(line) else {
        return vec![Message::Other];
    };
    let id = message.get("id").map(Value::to_string);
    let Some(method) = text(&message, "method") else {
        return vec![id.map_or(Message::Other, |id| Message::Answer { id })];
    };
    let empty = Map::new();
    let params = child(&message, "params").unwrap_or(&empty);
    let read = match (direction, method.as_str()) {
        (Direction::ToServer, "turn/start" | "turn/steer") => objects(params, "input")
            .map(|part| Message::Item(Item::User(flat(&Value::Object(part.clone())))))
            .collect(),
        (Direction::ToClient, "item/started") => {
            let item = child(params, "item");
            item.and_then(begun)
                .map(Message::Item)
                .into_iter()
                .collect()
        }
        (Direction::ToClient, "item/completed") => {
            let item = child(params, "item");
            item.and_then(finished)
                .map(Message::Item)
                .into_iter()
                .collect()
        }
        (Direction::ToClient, "turn/started") => {
            let turn = child(params, "turn").map(|turn| text_or_empty(turn, "id"));
            vec![Message::TurnStarted {
                thread: text_or_empty(params, "threadId"),
                turn: turn.unwrap_or_default(),
            }]
        }
        (Direction::ToClient, "turn/completed") => {
            let turn = child(params, "turn").unwrap_or(&empty);
            vec![Message::TurnEnded {
                turn: text_or_empty(turn, "id"),
                status: text_or_empty(turn, "status"),
            }]
        }
        (Direction::ToClient, method) if method.ends_with("requestApproval") => {
            // Without an id nobody waits for an answer.
            let Some(id) = id else {
                return vec![Message::Other];
            };
            vec![Message::Approval(Approval {
                id,
                thread: text_or_empty(params, "threadId"),
                turn: text_or_empty(params, "turnId"),
                item: text_or_empty(params, "itemId"),
                command: text_or_empty(params, "command"),
            })]
        }
        _ => Vec::new(),
    };
    if read.is_empty() {
        vec![Message::Other]
    } else {
        read
    }
}

/// Answers a request for approval: the action does not happen, the turn goes on.
#[must_use]
pub fn decline(approval: &Approval) -> String {
    format!(
        r#"{{"id":{},"result":{{"decision":"decline"}}}}"#,
        approval.id
    )
}

/// Corrective text for the running turn, as a request of ours with this id.
#[must_use]
pub fn steer(id: &str, thread: &str, turn: &str, words: &str) -> String {
    serde_json::json!({
        "id": id,
        "method": "turn/steer",
        "params": {
            "threadId": thread,
            "expectedTurnId": turn,
            "input": [{"type": "text", "text": words, "text_elements": []}],
        },
    })
    .to_string()
}

/// Ends the running turn, as a request of ours with this id.
#[must_use]
pub fn interrupt(id: &str, thread: &str, turn: &str) -> String {
    serde_json::json!({
        "id": id,
        "method": "turn/interrupt",
        "params": {"threadId": thread, "turnId": turn},
    })
    .to_string()
}

/// What is known when an item begins: that a tool is called.
fn begun(item: &Map<String, Value>) -> Option<Item> {
    let id = text_or_empty(item, "id");
    let call = |name: &str, arguments: String| {
        Some(Item::ToolCall {
            id: id.clone(),
            name: name.to_owned(),
            arguments,
        })
    };
    match text_or_empty(item, "type").as_str() {
        "commandExecution" => {
            let command = text_or_empty(item, "command");
            call("shell", serde_json::json!({"command": command}).to_string())
        }
        "fileChange" => call(
            "fileChange",
            serde_json::json!({"changes": item.get("changes")}).to_string(),
        ),
        "mcpToolCall" | "dynamicToolCall" => {
            let name = match text(item, "server") {
                Some(server) => format!("{server}.{}", text_or_empty(item, "tool")),
                None => text_or_empty(item, "tool"),
            };
            let arguments = item.get("arguments").map(Value::to_string);
            call(&name, arguments.unwrap_or_default())
        }
        "webSearch" => call(
            "web_search",
            serde_json::json!({"query": item.get("query")}).to_string(),
        ),
        _ => None,
    }
}

/// What is known when an item is over: what was said, or what the tool gave back.
fn finished(item: &Map<String, Value>) -> Option<Item> {
    let id = text_or_empty(item, "id");
    let result = |text: String| Some(Item::ToolResult { id, text });
    match text_or_empty(item, "type").as_str() {
        "userMessage" => None,
        "agentMessage" | "plan" => Some(Item::Narration(text_or_empty(item, "text"))),
        "reasoning" => {
            let parts = ["summary", "content"]
                .iter()
                .filter_map(|key| item.get(*key));
            let text = parts.map(flat).collect::<Vec<_>>().join("\n");
            (!text.trim().is_empty()).then_some(Item::Reasoning(text))
        }
        "commandExecution" => {
            let output = text_or_empty(item, "aggregatedOutput");
            match text_or_empty(item, "status").as_str() {
                "completed" => result(output),
                status => result(format!("[{status}] {output}")),
            }
        }
        "fileChange" => result(text_or_empty(item, "status")),
        "mcpToolCall" | "dynamicToolCall" => {
            let given = ["result", "error", "contentItems"]
                .iter()
                .filter_map(|key| item.get(*key));
            result(
                given
                    .filter(|v| !v.is_null())
                    .map(flat)
                    .collect::<Vec<_>>()
                    .join("\n"),
            )
        }
        "webSearch" => result(String::new()),
        _ => None,
    }
}
