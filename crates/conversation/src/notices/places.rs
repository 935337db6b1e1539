//! Where a request has room for a notice, protocol by protocol.

use crate::json::{flat, parse};
use crate::protocol::Protocol;
use crate::splice::{Edit, Members, Span, escaped, member, string_member};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Tells a place again in a later request: the call's id, and its content, since some providers
/// number their calls from zero in every answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The call's id; nothing for a user message.
    id: Option<String>,
    content: u64,
    /// How many earlier places are the same.
    nth: u32,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) key: Key,
    pub(super) slot: Slot,
}

#[derive(Debug)]
pub(super) struct Places {
    /// In the order of the conversation.
    pub(super) places: Vec<Place>,
    /// Whether a new notice may be put in.
    pub(super) takes_new: bool,
}

/// How text gets in.
#[derive(Debug)]
pub(super) enum Slot {
    /// Before the closing quote of a string.
    Text { at: usize },
    /// Another element before the closing bracket of a list: `before`, the text, `after`.
    Element {
        at: usize,
        first: bool,
        before: &'static str,
    },
    /// Another member before the closing brace of an object.
    Member {
        at: usize,
        first: bool,
        name: String,
    },
    /// In the place of a value that holds nothing.
    Instead { at: usize, until: usize },
}

impl Slot {
    pub(super) fn edit(&self, notices: &[String]) -> Edit {
        let joined = escaped(&notices.join("\n\n"));
        let comma = |first: bool| if first { "" } else { "," };
        let (at, until, text) = match self {
            Self::Text { at } => (*at, *at, format!("\\n\\n{joined}")),
            Self::Element { at, first, before } => {
                (*at, *at, format!("{}{before}\"{joined}\"}}", comma(*first)))
            }
            Self::Member { at, first, name } => (
                *at,
                *at,
                format!("{}\"{name}\":\"{joined}\"", comma(*first)),
            ),
            Self::Instead { at, until } => (*at, *until, format!("\"{joined}\"")),
        };
        Edit { at, until, text }
    }
}

pub(super) fn find(protocol: Protocol, text: &str) -> Option<Places> {
    let body = Span::whole(text)?.members()?;
    let mut found = Found::default();
    let offers_tools = match protocol {
        Protocol::AnthropicMessages => anthropic(&body, &mut found)?,
        Protocol::OpenAiResponses => responses(&body, &mut found)?,
        Protocol::OpenAiChat => chat(&body, &mut found)?,
        Protocol::Gemini => gemini(&body, &mut found)?,
    };
    let takes_new = (offers_tools || found.result_seen) && !found.warms_up && found.newest_fits;
    Some(Places {
        places: found.places,
        takes_new,
    })
}

#[derive(Default)]
struct Found {
    places: Vec<Place>,
    same: HashMap<(Option<String>, u64), u32>,
    result_seen: bool,
    /// The newest result or message is among the places.
    newest_fits: bool,
    warms_up: bool,
}

impl Found {
    fn result(&mut self, id: String, content: Option<Span<'_>>, slot: Option<Slot>) {
        self.result_seen = true;
        self.add(Some(id), content, slot);
    }

    fn user(&mut self, content: Option<Span<'_>>, slot: Option<Slot>) {
        self.add(None, content, slot);
    }

    fn add(&mut self, id: Option<String>, content: Option<Span<'_>>, slot: Option<Slot>) {
        let mut hasher = DefaultHasher::new();
        if let Some(content) = content {
            // Its text, so that another spelling of the same content is the same place.
            match parse(content.text.as_bytes()).map(|value| flat(&value)) {
                Ok(text) if !text.is_empty() => text.hash(&mut hasher),
                _ => content.text.hash(&mut hasher),
            }
        }
        let content = hasher.finish();
        let same = self.same.entry((id.clone(), content)).or_default();
        let nth = *same;
        *same += 1;
        self.newest_fits = slot.is_some();
        if let Some(slot) = slot {
            self.places.push(Place {
                key: Key { id, content, nth },
                slot,
            });
        }
    }
}

const TEXT_PART: &str = r#"{"type":"text","text":"#;
const INPUT_TEXT_PART: &str = r#"{"type":"input_text","text":"#;
const GEMINI_PART: &str = r#"{"text":"#;

fn anthropic(body: &Members<'_>, found: &mut Found) -> Option<bool> {
    for message in list(body, "messages") {
        let Some(message) = message.members() else {
            continue;
        };
        if string_member(&message, "role") != "user" {
            continue;
        }
        let content = member(&message, "content");
        let blocks: Vec<Members<'_>> = content
            .and_then(Span::elements)
            .into_iter()
            .flatten()
            .filter_map(Span::members)
            .collect();
        let is_result = |block: &&Members<'_>| string_member(block, "type") == "tool_result";
        if !blocks.iter().any(|block| is_result(&block)) {
            found.user(
                content,
                content.and_then(|content| text_or_parts(content, TEXT_PART)),
            );
        }
        for block in blocks.iter().filter(is_result) {
            let inner = member(block, "content");
            let slot = match inner {
                Some(inner) => text_or_parts(inner, TEXT_PART),
                // No content at all: there is an id, so the object is not empty.
                None => member(block, "tool_use_id").map(|id| Slot::Member {
                    at: id.at + id.text.len(),
                    first: false,
                    name: "content".to_owned(),
                }),
            };
            found.result(string_member(block, "tool_use_id"), inner, slot);
        }
    }
    Some(!list(body, "tools").is_empty())
}

fn responses(body: &Members<'_>, found: &mut Found) -> Option<bool> {
    let nested = member(body, "response").and_then(Span::members);
    let body = nested
        .as_ref()
        .filter(|_| !body.contains_key("input"))
        .unwrap_or(body);
    found.warms_up = member(body, "generate").is_some_and(|generate| generate.is("false"));
    let input = member(body, "input")?;
    let mut offers_tools = !list(body, "tools").is_empty();
    if input.text.starts_with('"') {
        found.user(
            Some(input),
            Some(Slot::Text {
                at: input.inner_end(),
            }),
        );
    }
    for item in input.elements().unwrap_or_default() {
        let Some(item) = item.members() else { continue };
        let kind = string_member(&item, "type");
        if kind == "additional_tools" {
            offers_tools |= !list(&item, "tools").is_empty();
        } else if kind.ends_with("_output") {
            let output = member(&item, "output");
            let slot = output.and_then(|output| match kind.as_str() {
                "shell_call_output" => last_stdout(output),
                "computer_call_output" => None,
                _ => text_or_parts(output, INPUT_TEXT_PART),
            });
            found.result(string_member(&item, "call_id"), output, slot);
        } else if string_member(&item, "role") == "user" {
            let content = member(&item, "content");
            found.user(
                content,
                content.and_then(|content| text_or_parts(content, INPUT_TEXT_PART)),
            );
        }
    }
    Some(offers_tools)
}

fn chat(body: &Members<'_>, found: &mut Found) -> Option<bool> {
    for message in list(body, "messages") {
        let Some(message) = message.members() else {
            continue;
        };
        let content = member(&message, "content");
        let slot = content.and_then(|content| text_or_parts(content, TEXT_PART));
        match string_member(&message, "role").as_str() {
            "user" => found.user(content, slot),
            "tool" => found.result(string_member(&message, "tool_call_id"), content, slot),
            "function" => found.result(string_member(&message, "name"), content, slot),
            _ => {}
        }
    }
    Some(!list(body, "tools").is_empty() || !list(body, "functions").is_empty())
}

fn gemini(body: &Members<'_>, found: &mut Found) -> Option<bool> {
    let nested = member(body, "request").and_then(Span::members);
    let body = nested.as_ref().unwrap_or(body);
    for content in list(body, "contents") {
        let Some(content) = content.members() else {
            continue;
        };
        if string_member(&content, "role") == "model" {
            continue;
        }
        let Some(parts) = member(&content, "parts") else {
            continue;
        };
        let mut results = 0;
        for part in parts.elements().unwrap_or_default() {
            let Some(part) = part.members() else { continue };
            let result =
                member(&part, "functionResponse").or_else(|| member(&part, "function_response"));
            let Some(result) = result.and_then(Span::members) else {
                continue;
            };
            results += 1;
            let id = match string_member(&result, "id") {
                id if id.is_empty() => string_member(&result, "name"),
                id => id,
            };
            let response = member(&result, "response");
            found.result(id, response, response.and_then(new_member));
        }
        if results == 0 {
            found.user(Some(parts), text_or_parts(parts, GEMINI_PART));
        }
    }
    let declares = |tool: Span<'_>| {
        tool.members().is_some_and(|tool| {
            !list(&tool, "functionDeclarations").is_empty()
                || !list(&tool, "function_declarations").is_empty()
        })
    };
    Some(list(body, "tools").into_iter().any(declares))
}

/// A string, or a list of parts each of which begins like `part`.
fn text_or_parts(content: Span<'_>, part: &'static str) -> Option<Slot> {
    match content.text.as_bytes().first()? {
        b'"' => Some(Slot::Text {
            at: content.inner_end(),
        }),
        b'[' => Some(Slot::Element {
            at: content.inner_end(),
            first: content.is_empty(),
            before: part,
        }),
        b'n' => Some(Slot::Instead {
            at: content.at,
            until: content.at + content.text.len(),
        }),
        _ => None,
    }
}

/// The standard output of the last command of a shell call.
fn last_stdout(output: Span<'_>) -> Option<Slot> {
    let last = output.elements()?.into_iter().next_back()?.members()?;
    member(&last, "stdout")
        .filter(|out| out.text.starts_with('"'))
        .map(|out| Slot::Text {
            at: out.inner_end(),
        })
}

/// A member of a function's response that it does not have yet.
fn new_member(response: Span<'_>) -> Option<Slot> {
    let members = response.members()?;
    let name = ["notice", "boundary_notice", "kairos_notice"]
        .into_iter()
        .find(|name| !members.contains_key(*name))?;
    Some(Slot::Member {
        at: response.inner_end(),
        first: response.is_empty(),
        name: name.to_owned(),
    })
}

fn list<'a>(members: &Members<'a>, key: &str) -> Vec<Span<'a>> {
    member(members, key)
        .and_then(Span::elements)
        .unwrap_or_default()
}
