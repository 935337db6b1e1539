//! A conversation as it grows. Agents send the whole of it again with every request, retry what
//! failed, fork it for helpers and shorten it; what comes out here is each piece once, in the order
//! in which it was first seen.

use crate::item::{Item, ReadError};
use crate::protocol::{Call, Protocol, Purpose};
use crate::response::ResponseReader;
use crate::{json, read_request};
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Answers that are being read at one time; the oldest gives way.
const OPEN_ANSWERS_MAX: usize = 64;

/// Reads one session's traffic with model providers.
#[derive(Debug, Default)]
pub struct Reader {
    /// How often each piece has been told.
    told: HashMap<u64, u32>,
    /// Requests that continue an answer kept by the provider, to know a retry.
    continued: HashSet<u64>,
    answers: HashMap<String, ResponseReader>,
    /// Their keys, oldest first.
    order: VecDeque<String>,
}

impl Reader {
    /// A reader at the start of a session.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a request adds to the conversation. `body` is whole and decoded: a request's body, or
    /// one WebSocket message.
    ///
    /// # Errors
    /// When it is no JSON object; the reader is then as it was.
    pub fn request(&mut self, call: Call, body: &[u8]) -> Result<Vec<Item>, ReadError> {
        if call.purpose == Purpose::Models {
            return Ok(Vec::new());
        }
        let request = read_request(call.protocol, body)?;
        if let Some(previous) = &request.previous {
            // Only what is new was sent: all of it counts, except when it is sent again.
            let mut hasher = DefaultHasher::new();
            previous.hash(&mut hasher);
            request
                .items
                .iter()
                .for_each(|item| piece(item).hash(&mut hasher));
            if !self.continued.insert(hasher.finish()) {
                return Ok(Vec::new());
            }
            // Tool calls and results have ids of their own; one that comes again is the same.
            let fresh = request.items.into_iter().filter(|item| {
                let times = self.told.entry(piece(item)).or_default();
                let known = *times > 0 && !says(item);
                *times += 1;
                !known
            });
            return Ok(fresh.collect());
        }
        let mut here: HashMap<u64, u32> = HashMap::new();
        let mut fresh = Vec::new();
        for item in request.items {
            let piece = piece(&item);
            let here = here.entry(piece).or_default();
            *here += 1;
            let told = self.told.entry(piece).or_default();
            if *here > *told {
                *told = *here;
                fresh.push(item);
            }
        }
        Ok(fresh)
    }

    /// What the next bytes of an answer complete. `key` tells answers apart that come at the same
    /// time; no bytes end an answer. A WebSocket message is an answer's piece like any other.
    pub fn answer(&mut self, key: &str, protocol: Protocol, bytes: &[u8]) -> Vec<Item> {
        let items = if bytes.is_empty() {
            let Some(mut reader) = self.answers.remove(key) else {
                return Vec::new();
            };
            self.order.retain(|open| open != key);
            reader.finish()
        } else {
            let message = protocol == Protocol::OpenAiResponses && is_message(bytes);
            let reader = self.open(key, protocol);
            if message {
                reader.push_message(bytes)
            } else {
                reader.push(bytes)
            }
        };
        for item in &items {
            *self.told.entry(piece(item)).or_default() += 1;
        }
        items
    }

    fn open(&mut self, key: &str, protocol: Protocol) -> &mut ResponseReader {
        if !self.answers.contains_key(key) {
            self.order.push_back(key.to_owned());
            if self.order.len() > OPEN_ANSWERS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.answers.remove(&oldest);
            }
        }
        self.answers
            .entry(key.to_owned())
            .or_insert_with(|| ResponseReader::new(protocol))
    }
}

/// Whether these bytes are one whole event of a WebSocket, rather than part of a body.
fn is_message(bytes: &[u8]) -> bool {
    let start = bytes.get(..200.min(bytes.len())).unwrap_or_default();
    if start.first() != Some(&b'{') || !String::from_utf8_lossy(start).contains("\"type\"") {
        return false;
    }
    matches!(json::parse(bytes), Ok(Value::Object(event))
    if event.get("type").and_then(Value::as_str).is_some_and(|kind| {
        kind.starts_with("response.") || kind == "error" || kind.starts_with("codex.")
    }))
}

/// Text, which can be said twice.
fn says(item: &Item) -> bool {
    matches!(
        item,
        Item::Instruction(_) | Item::User(_) | Item::Narration(_) | Item::Reasoning(_)
    )
}

/// Tells a piece of a conversation again, however it is spelled the next time.
fn piece(item: &Item) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(item).hash(&mut hasher);
    match item {
        Item::Instruction(text)
        | Item::User(text)
        | Item::Narration(text)
        | Item::Reasoning(text) => text.trim().hash(&mut hasher),
        Item::ToolCall {
            id,
            name,
            arguments,
        } => {
            id.hash(&mut hasher);
            name.hash(&mut hasher);
            match serde_json::from_str::<Value>(arguments) {
                // Keys in order, no white space.
                Ok(value) => value.to_string().hash(&mut hasher),
                Err(_) => arguments.hash(&mut hasher),
            }
        }
        Item::ToolResult { id, text } => {
            id.hash(&mut hasher);
            text.trim().hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CHAT: Call = Call {
        protocol: Protocol::OpenAiChat,
        purpose: Purpose::Generate,
    };
    const RESPONSES: Call = Call {
        protocol: Protocol::OpenAiResponses,
        purpose: Purpose::Generate,
    };

    fn chat(messages: Value) -> Vec<u8> {
        json!({"model": "m", "messages": messages})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn history_is_told_once() {
        let mut reader = Reader::new();
        let user = json!({"role": "user", "content": "go on"});
        let first = chat(json!([user]));
        assert_eq!(
            reader.request(CHAT, &first).unwrap(),
            [Item::User("go on".into())]
        );
        assert_eq!(reader.request(CHAT, &first).unwrap(), [], "a retry");
        let answer = br#"{"choices":[{"message":{"role":"assistant","content":"yes","tool_calls":[
            {"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls\"}"}}]}}]}"#;
        assert_eq!(reader.answer("k", Protocol::OpenAiChat, answer), []);
        assert_eq!(reader.answer("k", Protocol::OpenAiChat, &[]).len(), 2);
        let second = chat(json!([user,
            {"role": "assistant", "content": "yes", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "a"},
            user]));
        let expect = [
            Item::ToolResult {
                id: "c1".into(),
                text: "a".into(),
            },
            Item::User("go on".into()),
        ];
        assert_eq!(reader.request(CHAT, &second).unwrap(), expect);
    }

    #[test]
    fn a_conversation_kept_by_the_provider_grows_by_what_is_sent() {
        let mut reader = Reader::new();
        let request = |previous: Value, text: &str| {
            let input = json!([{"type": "message", "role": "user", "content": text}]);
            json!({"type": "response.create", "previous_response_id": previous, "input": input})
                .to_string()
                .into_bytes()
        };
        let one = |reader: &mut Reader, body: &[u8]| reader.request(RESPONSES, body).unwrap().len();
        assert_eq!(one(&mut reader, &request(Value::Null, "go on")), 1);
        assert_eq!(one(&mut reader, &request(json!("r1"), "go on")), 1);
        assert_eq!(one(&mut reader, &request(json!("r1"), "go on")), 0, "retry");
        assert_eq!(one(&mut reader, &request(json!("r2"), "go on")), 1);
    }

    #[test]
    fn messages_of_a_socket_are_read_one_by_one() {
        let mut reader = Reader::new();
        let done = json!({"type": "response.output_item.done", "item":
            {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "text(1)"}});
        let items = reader.answer("ws", Protocol::OpenAiResponses, done.to_string().as_bytes());
        assert_eq!(items.len(), 1);
        let items = reader.answer("ws", Protocol::OpenAiResponses, done.to_string().as_bytes());
        assert_eq!(items.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let mut reader = Reader::new();
        assert!(reader.request(CHAT, b"[1]").is_err());
        assert!(reader.request(CHAT, b"").is_err());
        assert_eq!(
            reader
                .request(CHAT, br#"{"messages": 7, "new": {}}"#)
                .unwrap(),
            []
        );
    }
}
