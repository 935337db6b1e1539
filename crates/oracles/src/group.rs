//! What belongs together in front of a person: holds that do the same kind of thing for the same
//! reasons. Sixty of them are one question, not sixty.

use kernel::{Object, Reason};
use monitor::{View, ViewHold};

/// Holds of one kind, oldest first; groups stand in the order of their oldest hold.
pub(crate) struct Group<'a> {
    key: Key,
    pub(crate) holds: Vec<&'a ViewHold>,
}

#[derive(PartialEq, Eq)]
struct Key {
    operation: String,
    place: String,
    reasons: Vec<String>,
    carries: String,
}

pub(crate) fn groups(view: &View) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for hold in &view.holds {
        let key = key(hold);
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.holds.push(hold),
            None => groups.push(Group {
                key,
                holds: vec![hold],
            }),
        }
    }
    groups
}

fn key(hold: &ViewHold) -> Key {
    let place = match &hold.effect.object {
        Object::Location { tree, .. } => tree.clone(),
        Object::Party {
            scheme, host, port, ..
        } => format!("{scheme}://{host}:{port}"),
        Object::Tool { name } => name.clone(),
    };
    let carries = match &hold.carries {
        Some((level, origins)) => {
            let origins: Vec<String> = origins.iter().map(|o| o.source.to_string()).collect();
            format!("{level} {}", origins.join(" "))
        }
        None => String::new(),
    };
    Key {
        operation: hold.effect.operation.name().to_string(),
        place,
        reasons: hold.reasons.iter().filter_map(kind).collect(),
        carries,
    }
}

/// A reason without what differs from hold to hold of one kind.
fn kind(reason: &Reason) -> Option<String> {
    Some(match reason {
        Reason::NotDerivable {
            field,
            kind,
            origins,
            ..
        } => {
            let source = origins
                .first()
                .map(|origin| origin.source.to_string())
                .unwrap_or_default();
            format!("{field} {} {source}", kind.name())
        }
        Reason::NotForOperation { party, .. } => format!("not for {party}"),
        // What it waits for says nothing about what it is.
        Reason::After(_) => return None,
        other => other.to_string(),
    })
}
