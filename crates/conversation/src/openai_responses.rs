//! OpenAI Responses, over HTTP and as WebSocket messages.

use crate::item::{Item, Request};
use crate::json::{child, flag, flat, objects, text, text_or_empty};
use serde_json::{Map, Value};

/// `body` is a request, or a `response.create` message, whose fields may be one level deeper.
pub(crate) fn read_request(body: &Map<String, Value>) -> Request {
    let body = child(body, "response")
        .filter(|_| !body.contains_key("input"))
        .unwrap_or(body);
    let mut request = Request {
        model: text(body, "model"),
        stream: flag(body, "stream"),
        previous: text(body, "previous_response_id"),
        ..Request::default()
    };
    request
        .tools
        .extend(objects(body, "tools").flat_map(tool_names));
    if let Some(instructions) = text(body, "instructions").filter(|text| !text.is_empty()) {
        request.items.push(Item::Instruction(instructions));
    }
    match body.get("input") {
        Some(Value::String(text)) => request.items.push(Item::User(text.clone())),
        Some(Value::Array(items)) => {
            for item in items.iter().filter_map(Value::as_object) {
                if text_or_empty(item, "type") == "additional_tools" {
                    request
                        .tools
                        .extend(objects(item, "tools").flat_map(tool_names));
                }
                request.items.extend(read_item(item));
            }
        }
        _ => {}
    }
    request
}

pub(crate) fn read_response(body: &Map<String, Value>) -> Vec<Item> {
    objects(body, "output").filter_map(read_item).collect()
}

/// Streamed events, which carry each item once it is complete.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    seen: bool,
}

impl Stream {
    pub(crate) fn event(&mut self, event: &Map<String, Value>) -> Vec<Item> {
        match event.get("type").and_then(Value::as_str) {
            Some("response.output_item.done") => {
                self.seen = true;
                child(event, "item")
                    .and_then(read_item)
                    .into_iter()
                    .collect()
            }
            Some("response.created") => {
                self.seen = false;
                Vec::new()
            }
            // Some servers send the items with the end only.
            Some("response.completed" | "response.incomplete") if !self.seen => {
                child(event, "response")
                    .map(read_response)
                    .unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

fn tool_names(tool: &Map<String, Value>) -> Vec<String> {
    let name = text(tool, "name")
        .or_else(|| text(tool, "type"))
        .unwrap_or_default();
    if text_or_empty(tool, "type") == "namespace" {
        let names = objects(tool, "tools").flat_map(tool_names);
        return names.map(|inner| format!("{name}.{inner}")).collect();
    }
    vec![name]
}

fn read_item(item: &Map<String, Value>) -> Option<Item> {
    let kind = item
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("message");
    match kind {
        "message" => {
            let text = item.get("content").map(flat).unwrap_or_default();
            match text_or_empty(item, "role").as_str() {
                "assistant" => Some(Item::Narration(text)),
                "system" | "developer" => Some(Item::Instruction(text)),
                "" => None,
                // Roles that came later say things too.
                _ => Some(Item::User(text)),
            }
        }
        "reasoning" => {
            let parts = ["summary", "content"]
                .iter()
                .filter_map(|key| item.get(*key))
                .map(flat);
            let text = parts
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("\n");
            (!text.is_empty()).then_some(Item::Reasoning(text))
        }
        _ if kind.ends_with("_output") => Some(Item::ToolResult {
            id: text_or_empty(item, "call_id"),
            text: item.get("output").map(output).unwrap_or_default(),
        }),
        // Approvals, references, compacted history: their text, if they have any.
        "mcp_approval_request" => Some(Item::ToolCall {
            id: text_or_empty(item, "id"),
            name: tool_name(item, kind),
            arguments: arguments(item),
        }),
        "mcp_approval_response" => Some(Item::ToolResult {
            id: text_or_empty(item, "approval_request_id"),
            text: item
                .get("approve")
                .map(Value::to_string)
                .unwrap_or_default(),
        }),
        _ if kind.ends_with("_call") => Some(Item::ToolCall {
            id: text(item, "call_id")
                .or_else(|| text(item, "id"))
                .unwrap_or_default(),
            name: tool_name(item, kind),
            arguments: arguments(item),
        }),
        _ => None,
    }
}

/// What a tool gave back: text, parts, or an object whose text is all there is to tell.
fn output(output: &Value) -> String {
    let text = flat(output);
    match output {
        Value::Object(_) if text.is_empty() => output.to_string(),
        _ => text,
    }
}

fn tool_name(item: &Map<String, Value>, kind: &str) -> String {
    let name = text(item, "name");
    let name = name.unwrap_or_else(|| kind.strip_suffix("_call").unwrap_or(kind).to_owned());
    match text(item, "namespace").or_else(|| text(item, "server_label")) {
        Some(space) => format!("{space}.{name}"),
        None => name,
    }
}

fn arguments(item: &Map<String, Value>) -> String {
    let keys = [
        "arguments",
        "input",
        "action",
        "operation",
        "code",
        "queries",
    ];
    match keys.iter().find_map(|key| item.get(*key)) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}
