//! Objects, reasons and origins as JSON, the same wherever a program reads them: oracles, harnesses.

use kernel::{HoldId, Object, Origin, Reason};
use serde_json::{Value, json};

/// An object: its kind, its text, and its parts.
pub fn object(object: &Object) -> Value {
    let text = object.to_string();
    match object {
        Object::Location { tree, path } => {
            json!({ "kind": "location", "text": text, "tree": tree, "path": path })
        }
        Object::Party {
            scheme,
            host,
            port,
            path,
        } => json!({
            "kind": "party", "text": text, "scheme": scheme, "host": host, "port": port, "path": path,
        }),
        Object::Tool { name } => json!({ "kind": "tool", "text": text, "name": name }),
    }
}

/// A reason: its kind, its words, and the values it speaks of.
pub fn reason(reason: &Reason) -> Value {
    let text = reason.to_string();
    match reason {
        Reason::UnknownParty(host) => {
            json!({ "kind": "unknown-party", "text": text, "host": host })
        }
        Reason::UnknownTool(name) => json!({ "kind": "unknown-tool", "text": text, "name": name }),
        Reason::NotForOperation { party, operation } => {
            json!({ "kind": "not-for-operation", "text": text, "party": party, "operation": operation })
        }
        Reason::NotDerivable {
            field,
            kind,
            value,
            origins,
        } => json!({
            "kind": "not-derivable", "text": text, "field": field, "value_kind": kind.name(), "value": value,
            "origins": origins.iter().map(origin).collect::<Vec<_>>(),
        }),
        Reason::Clearance {
            level,
            clearance,
            origins,
        } => json!({
            "kind": "clearance", "text": text, "level": level.name(), "clearance": clearance.name(),
            "origins": origins.iter().map(origin).collect::<Vec<_>>(),
        }),
        Reason::ExecutesLater { place } => {
            json!({ "kind": "executes-later", "text": text, "place": place })
        }
        Reason::After(holds) => json!({
            "kind": "after", "text": text, "holds": holds.iter().map(HoldId::to_string).collect::<Vec<_>>(),
        }),
        Reason::Recovered => json!({ "kind": "recovered", "text": text }),
    }
}

/// Where a value came from, in words and by line.
pub fn origin(origin: &Origin) -> Value {
    json!({ "source": origin.source.to_string(), "event": origin.event.0, "line": origin.line })
}
