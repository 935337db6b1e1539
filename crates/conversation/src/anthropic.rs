//! Anthropic Messages.

use crate::item::{Item, Request};
use crate::json::{attachment, child, flag, flat, list, objects, text, text_or_empty};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(crate) fn read_request(body: &Map<String, Value>) -> Request {
    let mut items = Vec::new();
    if let Some(system) = body.get("system") {
        items.push(Item::Instruction(flat(system)));
    }
    for message in objects(body, "messages") {
        let role = text_or_empty(message, "role");
        match message.get("content") {
            Some(Value::String(text)) => items.push(said(&role, text.clone())),
            Some(Value::Array(blocks)) => {
                let blocks = blocks.iter().filter_map(Value::as_object);
                items.extend(blocks.filter_map(|block| read_block(&role, block)));
            }
            _ => {}
        }
    }
    items.retain(|item| *item != Item::Instruction(String::new()));
    Request {
        model: text(body, "model"),
        items,
        tools: objects(body, "tools")
            .filter_map(|tool| text(tool, "name"))
            .collect(),
        stream: flag(body, "stream"),
        previous: None,
    }
}

pub(crate) fn read_response(body: &Map<String, Value>) -> Vec<Item> {
    objects(body, "content")
        .filter_map(|block| read_block("assistant", block))
        .collect()
}

/// Assembles streamed blocks.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    blocks: BTreeMap<u64, Map<String, Value>>,
    /// The text that arrives for a block, or the JSON of its input.
    texts: BTreeMap<u64, String>,
}

impl Stream {
    pub(crate) fn event(&mut self, event: &Map<String, Value>) -> Vec<Item> {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match event.get("type").and_then(Value::as_str) {
            Some("content_block_start") => {
                if let Some(block) = child(event, "content_block") {
                    self.blocks.insert(index, block.clone());
                    self.texts.insert(index, String::new());
                }
                Vec::new()
            }
            Some("content_block_delta") => {
                if let (Some(delta), Some(so_far)) =
                    (child(event, "delta"), self.texts.get_mut(&index))
                {
                    for key in ["text", "partial_json", "thinking"] {
                        so_far.push_str(delta.get(key).and_then(Value::as_str).unwrap_or(""));
                    }
                }
                Vec::new()
            }
            Some("content_block_stop") => self.close(index).into_iter().collect(),
            Some("message_stop") => self.finish(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn finish(&mut self) -> Vec<Item> {
        let open: Vec<u64> = self.blocks.keys().copied().collect();
        open.into_iter()
            .filter_map(|index| self.close(index))
            .collect()
    }

    fn close(&mut self, index: u64) -> Option<Item> {
        let block = self.blocks.remove(&index)?;
        let streamed = self.texts.remove(&index).unwrap_or_default();
        match read_block("assistant", &block)? {
            Item::ToolCall {
                id,
                name,
                arguments,
            } => {
                let arguments = if streamed.is_empty() {
                    arguments
                } else {
                    streamed
                };
                Some(Item::ToolCall {
                    id,
                    name,
                    arguments,
                })
            }
            Item::Narration(text) => Some(Item::Narration(text + &streamed)),
            Item::Reasoning(text) => Some(Item::Reasoning(text + &streamed)),
            other => Some(other),
        }
    }
}

fn said(role: &str, text: String) -> Item {
    match role {
        "assistant" => Item::Narration(text),
        "system" => Item::Instruction(text),
        _ => Item::User(text),
    }
}

fn read_block(role: &str, block: &Map<String, Value>) -> Option<Item> {
    match block.get("type").and_then(Value::as_str)? {
        "text" => Some(said(role, text_or_empty(block, "text"))),
        "thinking" => Some(Item::Reasoning(text_or_empty(block, "thinking"))),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => Some(Item::ToolCall {
            id: text_or_empty(block, "id"),
            name: text_or_empty(block, "name"),
            arguments: block.get("input").map(Value::to_string).unwrap_or_default(),
        }),
        kind if kind.ends_with("tool_result") => Some(Item::ToolResult {
            id: text_or_empty(block, "tool_use_id"),
            text: block.get("content").map(flat).unwrap_or_default(),
        }),
        "document" => child(block, "source")
            .filter(|source| !list(source, "content").is_empty() || source.contains_key("data"))
            .filter(|source| text_or_empty(source, "type") == "text")
            .map(|source| said(role, text_or_empty(source, "data")))
            .or_else(|| attachment(block).map(|reference| said(role, reference))),
        "image" => attachment(block).map(|reference| said(role, reference)),
        _ => None,
    }
}
