//! What a harness reads back: one JSON object a line, in the order of its requests.

use serde::Serialize;
use serde_json::Value;

/// Why a request could not be answered: what, where, and what to do. Nothing was decided by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// What is wrong.
    pub what: String,
    /// Where: `line 3, column 17`.
    pub r#where: String,
    /// What to do.
    pub help: String,
}

impl Mistake {
    /// A mistake whose line is added when it is answered.
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            r#where: String::new(),
            help: help.into(),
        }
    }
}

/// An answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// A policy is loaded.
    Policy {
        /// Its name.
        policy: String,
        /// Its digest, 64 hexadecimal digits.
        epoch: String,
    },
    /// Something was recorded under this number.
    Event {
        /// The event.
        event: u64,
    },
    /// A proposed effect was decided.
    Decided(Box<Decided>),
    /// Holds were resolved.
    Resolved(Resolved),
    /// What is held, oldest first.
    Held {
        /// The holds.
        holds: Vec<Hold>,
        /// Names of holds that are connected, each scope oldest first.
        scopes: Vec<Vec<String>>,
        /// What was held for longer than the policy allows, and is refused by that.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        abort: Vec<Aborted>,
    },
    /// What an oracle may see.
    View {
        /// The view (docs/oracle-protocol.md).
        view: Value,
    },
    /// A session is over.
    Closed {
        /// Effects that were still held, and are refused by that.
        refused: Vec<String>,
    },
}

/// How a proposed effect was decided.
#[derive(Debug, Serialize)]
pub struct Decided {
    /// The event's number.
    pub event: u64,
    /// `release`, `refuse` or `defer`.
    pub decision: &'static str,
    /// How it can be held: `stageable`, `stallable`, `blocking`.
    pub class: &'static str,
    /// Why, in words.
    pub why: Vec<String>,
    /// Why, with values and where they came from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Value>,
    /// Digest of the manifest: what a verdict has to name.
    pub manifest: String,
    /// The hold, when it is deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The mark that the stand-in answer has to carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Holds it has to wait for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<String>,
    /// What to tell the agent, when it is not released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// What a verdict led to, in the order in which it has to be done.
#[derive(Debug, Default, Serialize)]
pub struct Resolved {
    /// Carry these out now, each once.
    pub commit: Vec<Committed>,
    /// These must not happen; tell the agent.
    pub abort: Vec<Aborted>,
}

/// A held effect that may happen now.
#[derive(Debug, Serialize)]
pub struct Committed {
    /// The hold.
    pub hold: String,
    /// Digest of its manifest.
    pub manifest: String,
}

/// A held effect that must not happen.
#[derive(Debug, Serialize)]
pub struct Aborted {
    /// The hold.
    pub hold: String,
    /// Why.
    pub why: String,
    /// What to tell the agent.
    pub notice: String,
}

/// Something held.
#[derive(Debug, Serialize)]
pub struct Hold {
    /// Its name.
    pub hold: String,
    /// Digest of its manifest.
    pub manifest: String,
    /// What it would do: `call tool send_money`.
    pub effect: String,
    /// How it is held.
    pub class: &'static str,
    /// Why it is not released.
    pub reasons: Vec<Value>,
    /// Holds it waits for.
    pub depends: Vec<String>,
}
