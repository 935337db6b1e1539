//! OpenAI Chat Completions.

use crate::item::{Item, Request};
use crate::json::{child, flag, flat, objects, text, text_or_empty};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(crate) fn read_request(body: &Map<String, Value>) -> Request {
    let function = |tool: &Map<String, Value>| {
        text(
            child(tool, "function")
                .or_else(|| child(tool, "custom"))
                .unwrap_or(tool),
            "name",
        )
    };
    Request {
        model: text(body, "model"),
        items: objects(body, "messages").flat_map(read_message).collect(),
        tools: objects(body, "tools")
            .chain(objects(body, "functions"))
            .filter_map(function)
            .collect(),
        stream: flag(body, "stream"),
        previous: None,
    }
}

pub(crate) fn read_response(body: &Map<String, Value>) -> Vec<Item> {
    let messages = objects(body, "choices").filter_map(|choice| child(choice, "message"));
    messages.flat_map(read_message).collect()
}

/// Assembles streamed deltas, per choice.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    choices: BTreeMap<u64, Choice>,
}

#[derive(Debug, Default)]
struct Choice {
    text: String,
    reasoning: String,
    /// Id, name, arguments.
    calls: BTreeMap<u64, [String; 3]>,
}

impl Stream {
    pub(crate) fn event(&mut self, event: &Map<String, Value>) -> Vec<Item> {
        let mut items = Vec::new();
        for choice in objects(event, "choices") {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            if let Some(delta) = child(choice, "delta") {
                self.choices.entry(index).or_default().add(delta);
            }
            if choice.get("finish_reason").is_some_and(Value::is_string)
                && let Some(choice) = self.choices.remove(&index)
            {
                items.extend(choice.items());
            }
        }
        items
    }

    pub(crate) fn finish(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.choices)
            .into_values()
            .flat_map(Choice::items)
            .collect()
    }
}

impl Choice {
    fn add(&mut self, delta: &Map<String, Value>) {
        self.text
            .push_str(&delta.get("content").map(flat).unwrap_or_default());
        for key in ["reasoning_content", "reasoning"] {
            self.reasoning
                .push_str(delta.get(key).and_then(Value::as_str).unwrap_or(""));
        }
        for (position, call) in objects(delta, "tool_calls").enumerate() {
            let index = call
                .get("index")
                .and_then(Value::as_u64)
                .unwrap_or(position as u64);
            let [id, name, arguments] = self.calls.entry(index).or_default();
            if let Some(new) = text(call, "id").filter(|new| !new.is_empty()) {
                *id = new;
            }
            if let Some(function) = child(call, "function") {
                name.push_str(&text_or_empty(function, "name"));
                arguments.push_str(&text_or_empty(function, "arguments"));
            }
        }
    }

    fn items(self) -> Vec<Item> {
        let mut items = Vec::new();
        if !self.reasoning.is_empty() {
            items.push(Item::Reasoning(self.reasoning));
        }
        if !self.text.is_empty() {
            items.push(Item::Narration(self.text));
        }
        let calls = self.calls.into_values();
        items.extend(calls.map(|[id, name, arguments]| Item::ToolCall {
            id,
            name,
            arguments,
        }));
        items
    }
}

fn read_message(message: &Map<String, Value>) -> Vec<Item> {
    let said = message.get("content").map(flat).unwrap_or_default();
    match text_or_empty(message, "role").as_str() {
        "system" | "developer" => vec![Item::Instruction(said)],
        "user" => vec![Item::User(said)],
        "tool" | "function" => {
            let id = text(message, "tool_call_id").or_else(|| text(message, "name"));
            vec![Item::ToolResult {
                id: id.unwrap_or_default(),
                text: said,
            }]
        }
        "assistant" => {
            let mut items = Vec::new();
            let thought = text(message, "reasoning_content").or_else(|| text(message, "reasoning"));
            items.extend(thought.filter(|text| !text.is_empty()).map(Item::Reasoning));
            if !said.is_empty() {
                items.push(Item::Narration(said));
            }
            items.extend(objects(message, "tool_calls").map(read_call));
            items.extend(child(message, "function_call").map(|call| Item::ToolCall {
                id: text_or_empty(call, "name"),
                name: text_or_empty(call, "name"),
                arguments: text_or_empty(call, "arguments"),
            }));
            items
        }
        _ => Vec::new(),
    }
}

fn read_call(call: &Map<String, Value>) -> Item {
    let inner = child(call, "function")
        .or_else(|| child(call, "custom"))
        .unwrap_or(call);
    let arguments = inner.get("arguments").or_else(|| inner.get("input"));
    Item::ToolCall {
        id: text_or_empty(call, "id"),
        name: text_or_empty(inner, "name"),
        arguments: match arguments {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        },
    }
}
