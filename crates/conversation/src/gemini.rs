//! Gemini `generateContent`, also wrapped as Code Assist sends it.

use crate::item::{Item, Request};
use crate::json::{attachment, child, flat, objects, text, text_or_empty};
use serde_json::{Map, Value};

pub(crate) fn read_request(body: &Map<String, Value>) -> Request {
    let inner = child(body, "request").unwrap_or(body);
    let system = child(inner, "systemInstruction").or_else(|| child(inner, "system_instruction"));
    let mut items = Vec::new();
    if let Some(system) = system {
        let parts = system.get("parts").map(flat).unwrap_or_default();
        items.push(Item::Instruction(parts));
    }
    items.extend(objects(inner, "contents").flat_map(read_content));
    let declarations = objects(inner, "tools").flat_map(|tool| {
        objects(tool, "functionDeclarations").chain(objects(tool, "function_declarations"))
    });
    Request {
        model: text(body, "model"),
        items,
        tools: declarations
            .filter_map(|declaration| text(declaration, "name"))
            .collect(),
        stream: false,
        previous: None,
    }
}

/// A response, or one event of a stream: text comes in pieces, calls are always whole.
pub(crate) fn read_response(body: &Map<String, Value>) -> Vec<Item> {
    let body = child(body, "response").unwrap_or(body);
    let contents = objects(body, "candidates").filter_map(|candidate| child(candidate, "content"));
    contents.flat_map(read_content).collect()
}

/// Joins the pieces of a text.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    open: Option<Item>,
}

impl Stream {
    pub(crate) fn event(&mut self, event: &Map<String, Value>) -> Vec<Item> {
        let mut items = Vec::new();
        for next in read_response(event) {
            match (&mut self.open, next) {
                (Some(Item::Narration(so_far)), Item::Narration(more))
                | (Some(Item::Reasoning(so_far)), Item::Reasoning(more)) => so_far.push_str(&more),
                (open, next @ (Item::Narration(_) | Item::Reasoning(_))) => {
                    items.extend(open.replace(next));
                }
                (open, next) => {
                    items.extend(open.take());
                    items.push(next);
                }
            }
        }
        items
    }

    pub(crate) fn finish(&mut self) -> Vec<Item> {
        self.open.take().into_iter().collect()
    }
}

fn read_content(content: &Map<String, Value>) -> Vec<Item> {
    let role = text_or_empty(content, "role");
    objects(content, "parts")
        .filter_map(|part| read_part(&role, part))
        .collect()
}

fn read_part(role: &str, part: &Map<String, Value>) -> Option<Item> {
    if let Some(call) = child(part, "functionCall").or_else(|| child(part, "function_call")) {
        return Some(Item::ToolCall {
            id: text_or_empty(call, "id"),
            name: text_or_empty(call, "name"),
            arguments: call.get("args").map(Value::to_string).unwrap_or_default(),
        });
    }
    if let Some(result) =
        child(part, "functionResponse").or_else(|| child(part, "function_response"))
    {
        return Some(Item::ToolResult {
            id: text(result, "id").unwrap_or_else(|| text_or_empty(result, "name")),
            text: result
                .get("response")
                .map(response_text)
                .unwrap_or_default(),
        });
    }
    let text = text(part, "text")
        .or_else(|| attachment(part))
        .or_else(|| code(part))?;
    Some(match role {
        "model" if part.get("thought").and_then(Value::as_bool) == Some(true) => {
            Item::Reasoning(text)
        }
        "model" => Item::Narration(text),
        "system" => Item::Instruction(text),
        _ => Item::User(text),
    })
}

/// Code that the provider runs itself, and what came of it.
fn code(part: &Map<String, Value>) -> Option<String> {
    let code = child(part, "executableCode").and_then(|inner| text(inner, "code"));
    code.or_else(|| child(part, "codeExecutionResult").and_then(|inner| text(inner, "output")))
}

/// A function's response is any object: its text where that is all there is, else all of it.
fn response_text(response: &Value) -> String {
    let only_text = response.as_object().is_some_and(|object| {
        !object.is_empty()
            && object.iter().all(|(key, value)| {
                value.is_string()
                    && matches!(key.as_str(), "output" | "content" | "text" | "result")
            })
    });
    if only_text && let Some(object) = response.as_object() {
        let texts = object.values().filter_map(Value::as_str);
        return texts.collect::<Vec<_>>().join("\n");
    }
    match response {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
