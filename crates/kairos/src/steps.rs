//! A session's conversation and its events as one trace, for the guards: live from the items as they
//! pass, and afterwards from the log, by the same conversions.

use std::collections::BTreeMap;

use conversation::Item;
use conversation::commands::{commands, paths, written};
use guards::{Settings, Step, Trace};
use kernel::policy::{Policy, SourcePattern};
use kernel::{Channel, Digest, Effect, Object, Source};
use store::{Blobs, Record};

/// The note of a log that tells a piece of the conversation.
pub(crate) const NOTE: &str = "conversation";
/// Content that is larger is not looked into.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What the log's note of a piece says; its text lies in a blob.
pub(crate) fn facts(item: &Item) -> (BTreeMap<String, String>, Vec<u8>) {
    let (kind, id, name, text) = match item {
        Item::Instruction(text) => ("instruction", "", "", text),
        Item::User(text) => ("user", "", "", text),
        Item::Narration(text) => ("narration", "", "", text),
        Item::Reasoning(text) => ("reasoning", "", "", text),
        Item::ToolCall {
            id,
            name,
            arguments,
        } => ("call", id.as_str(), name.as_str(), arguments),
        Item::ToolResult { id, text } => ("result", id.as_str(), "", text),
    };
    let mut facts = BTreeMap::from([
        ("kind".to_string(), kind.to_string()),
        ("bytes".to_string(), text.len().to_string()),
    ]);
    for (key, value) in [("id", id), ("name", name)] {
        if !value.is_empty() {
            facts.insert(key.to_string(), value.chars().take(200).collect());
        }
    }
    (facts, text.clone().into_bytes())
}

/// A piece of the conversation, back from a note of the log.
pub(crate) fn item(facts: &BTreeMap<String, String>, blobs: &Blobs) -> Option<Item> {
    let text = |key: &str| facts.get(key).cloned().unwrap_or_default();
    let digest = facts.get("blob").and_then(|hex| Digest::from_hex(hex));
    let content = digest.and_then(|digest| blobs.read(&digest).ok());
    let content = String::from_utf8_lossy(&content.unwrap_or_default()).into_owned();
    Some(match text("kind").as_str() {
        "instruction" => Item::Instruction(content),
        "user" => Item::User(content),
        "narration" => Item::Narration(content),
        "reasoning" => Item::Reasoning(content),
        "call" => Item::ToolCall {
            id: text("id"),
            name: text("name"),
            arguments: content,
        },
        "result" => Item::ToolResult {
            id: text("id"),
            text: content,
        },
        _ => return None,
    })
}

/// A piece of the conversation as a step. Instructions are the agent's own and no step.
pub(crate) fn step(item: &Item) -> Option<Step> {
    Some(match item {
        Item::Instruction(_) => return None,
        Item::User(text) => Step::User(text.clone()),
        Item::Narration(text) => Step::Narration(text.clone()),
        Item::Reasoning(text) => Step::Reasoning(text.clone()),
        Item::ToolCall {
            id,
            name,
            arguments,
        } => Step::Call {
            id: id.clone(),
            name: name.clone(),
            commands: commands(name, arguments),
            writes: written(arguments)
                .into_iter()
                .map(|file| (file.path, file.content))
                .collect(),
            paths: paths(arguments),
        },
        Item::ToolResult { id, text } => Step::Result {
            id: id.clone(),
            text: text.clone(),
        },
    })
}

/// An effect at the boundary as a step; traffic with the model is none.
pub(crate) fn effect(event: u64, effect: &Effect, decision: &str, policy: &Policy) -> Option<Step> {
    let host = match &effect.object {
        Object::Party {
            host, port, path, ..
        } => {
            let theirs = effect.fields.contains_key(kernel::policy::OTHER_ACCOUNT);
            let internal = policy.internal(host, *port, effect.operation.name(), path)
                || policy.internal(host, *port, "GET", path);
            if internal && !theirs {
                return None;
            }
            Some(host.clone())
        }
        Object::Location { .. } | Object::Tool { .. } => None,
    };
    Some(Step::Effect {
        event,
        operation: effect.operation.name().to_string(),
        object: effect.object.to_string(),
        host,
        decision: decision.to_string(),
        carries: effect.carries.tokens().next().is_some() && effect.channel == Channel::Net,
    })
}

/// What guards have to know of a policy.
pub(crate) fn settings(policy: &Policy) -> Settings {
    let mut sensitive = Vec::new();
    for rule in &policy.sensitive {
        if let SourcePattern::Location { path, .. } = &rule.of {
            sensitive.extend(path.0.split(" !").take(1).map(str::to_string));
        }
    }
    let providers = policy
        .parties
        .iter()
        .filter(|party| !party.internal.is_empty());
    Settings {
        sensitive,
        providers: providers
            .flat_map(|party| party.hosts.iter().map(|host| host.0.clone()))
            .collect(),
        ..Settings::default()
    }
}

/// The trace of a session that has a log.
pub(crate) fn of_log(
    entries: &[store::log::Entry],
    blobs: &Blobs,
    policy: &Policy,
    settings: Settings,
) -> Trace {
    let mut trace = Trace::new(settings);
    for entry in entries {
        let step = match &entry.record {
            Record::Note { what, facts } if what == NOTE => {
                item(facts, blobs).as_ref().and_then(step)
            }
            // The agent's own words.
            Record::Incoming { layer: Some(_), .. } => None,
            Record::Incoming {
                source,
                digest,
                kept,
                bytes,
                ..
            } => {
                let source = Source::from(source);
                let small = usize::try_from(*bytes).is_ok_and(|bytes| bytes <= TEXT_BYTES_MAX);
                let content = Digest::from_hex(digest)
                    .filter(|_| *kept && small)
                    .and_then(|digest| blobs.read(&digest).ok())
                    .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                match source {
                    Source::Task => content.map(Step::Task),
                    Source::Model(_) | Source::Policy => None,
                    source => Some(Step::Read {
                        sensitive: policy.sensitivity(&source) > kernel::Level::Public,
                        source: source.to_string(),
                        text: content,
                    }),
                }
            }
            Record::Proposed {
                event,
                effect: written,
                decision,
                ..
            } => written
                .read()
                .ok()
                .and_then(|read| effect(*event, &read, decision, policy)),
            _ => None,
        };
        if let Some(step) = step {
            trace.push(step);
        }
    }
    trace
}
