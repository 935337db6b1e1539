//! What the agent is told, worded in one place. A notice says what did not happen and that the
//! rest of the task stands. It never says how to get round it, never quotes a secret, and never
//! names what noticed it.

use alloc::format;
use alloc::string::{String, ToString};

use crate::decision::{Limit, Reason, Refusal};
use crate::event::{Effect, EventId, HoldId, Object};
use crate::sensitive::Scanner;

/// A notice for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The event it speaks of.
    pub event: EventId,
    /// Its text, one paragraph.
    pub text: String,
}

impl Notice {
    /// An effect was refused, at once or after it was held.
    pub fn refused(event: EventId, effect: &Effect, refusal: &Refusal) -> Self {
        Self::about(event, effect.operation.name(), &target(effect), refusal)
    }

    /// As [`Notice::refused`], where a name or the refusal's own words may be the secret itself: then
    /// only the kind of effect is named.
    pub fn refused_unseen(
        event: EventId,
        effect: &Effect,
        refusal: &Refusal,
        scanner: &Scanner,
    ) -> Self {
        let notice = Self::refused(event, effect, refusal);
        if !holds_secret(scanner, &notice.text) {
            return notice;
        }
        let bare = match refusal {
            Refusal::Rule { rule, .. } => &Refusal::Rule {
                rule: rule.clone(),
                says: None,
            },
            Refusal::Malformed(_) => &Refusal::Malformed(String::from("it contradicts itself")),
            other => other,
        };
        Self::about(event, "", kind_of(effect), bare)
    }

    fn about(event: EventId, operation: &str, target: &str, refusal: &Refusal) -> Self {
        let why = match refusal {
            Refusal::Rule {
                says: Some(says), ..
            } => format!("the operator's policy forbids it ({says})"),
            Refusal::Rule { .. } => String::from("the operator's policy forbids it"),
            Refusal::Oracle { .. } => String::from("it was reviewed and not approved"),
            Refusal::Depends(_) => String::from("it builds on something that was not approved"),
            Refusal::Malformed(what) => format!("it is not well formed: {what}"),
            Refusal::Failed(_) => String::from("it could not be decided"),
            Refusal::Limit(Limit::Age) => {
                String::from("it waited for a decision as long as the operator's policy allows")
            }
            Refusal::Limit(Limit::Holds | Limit::Bytes) => {
                String::from("as much as the operator's policy allows is held for review already")
            }
            Refusal::NobodyThere(reasons)
                if reasons
                    .iter()
                    .all(|reason| matches!(reason, Reason::After(_))) =>
            {
                String::from(
                    "something sent before it is still held for review, it has to come after that, and \
                     nobody was there to decide it",
                )
            }
            Refusal::NobodyThere(_) => {
                String::from("it needs a decision and nobody was there to make it")
            }
        };
        let text = format!(
            "[Kairos] This did not happen: {}. Reason: {why}. Nothing of it took effect. \
             The rest of your task stands: go on with what the user asked for, and do not try this again \
             unless the user's own words require it.",
            format!("{operation} {target}").trim(),
        );
        Self { event, text }
    }

    /// The stand-in answer for a held request. `mark` is the stub's unguessable mark.
    pub fn held(hold: HoldId, effect: &Effect, mark: &str) -> Self {
        let what = format!("{} {}", effect.operation.name(), target(effect));
        Self::waiting(hold, &what, mark)
    }

    /// As [`Notice::held`], where a name may be the secret itself: then only the kind of effect is
    /// named.
    pub fn held_unseen(hold: HoldId, effect: &Effect, mark: &str, scanner: &Scanner) -> Self {
        let notice = Self::held(hold, effect, mark);
        if holds_secret(scanner, &notice.text) {
            return Self::waiting(hold, kind_of(effect), mark);
        }
        notice
    }

    fn waiting(hold: HoldId, what: &str, mark: &str) -> Self {
        let text = format!(
            "[Kairos] Accepted for review, not sent yet: {what}. It is held until the end of the task and you \
             will be told if it is refused. Go on with the rest of your task; there is no need to repeat \
             it. (reference {mark})",
        );
        Self {
            event: EventId(hold.0),
            text,
        }
    }
}

fn holds_secret(scanner: &Scanner, text: &str) -> bool {
    scanner.scan(text.as_bytes()).tokens().next().is_some()
        || scanner.scan_name(text).tokens().next().is_some()
}

fn kind_of(effect: &Effect) -> &'static str {
    match &effect.object {
        Object::Party { .. } => "a request",
        Object::Location { .. } => "a change of a file",
        Object::Tool { .. } => "a tool call",
    }
}

/// The object as a notice may name it: a query, and the path of a request that carries something
/// sensitive, may themselves be the secret.
fn target(effect: &Effect) -> String {
    match &effect.object {
        Object::Party {
            scheme,
            host,
            port,
            path,
        } => {
            let path = path.split(['?', '#']).next().unwrap_or_default();
            let clean = effect.carries.tokens().next().is_none();
            let shown = Object::Party {
                scheme: scheme.clone(),
                host: host.clone(),
                port: *port,
                path: String::from(if clean { path } else { "" }),
            };
            shown.to_string()
        }
        object => object.to_string(),
    }
}
