//! The traits that adapters implement.

use std::collections::BTreeMap;

use kernel::{
    Digest, Effect, EventId, HoldId, Level, Limit, Notice, Origin, Reason, Refusal, Verdict,
};
use store::Lease;

use crate::session::Held;

/// A channel carries out what was held, or discards it. Called without any lock of the monitor
/// held, from the thread in which the verdict arrived (never from inside an async runtime).
pub trait Channel: Send + Sync {
    /// Carries a held effect out, exactly once, now. The channel checks that what is parked is
    /// what the lease's manifest names ([`Held::payload`] digest and size) and refuses otherwise.
    /// Returns what happened in a few words (`201 Created, 12 bytes`).
    ///
    /// # Errors
    /// What went wrong, for people: what, where, what to do. The effect counts as spent.
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String>;

    /// Discards a held effect: staged state and parked bytes go away, who waits is told.
    fn abort(&self, held: &Held, refusal: &Refusal, notice: &Notice);

    /// What a held effect would do, as text for people and oracles (a change as a diff); `None`
    /// when the parked bytes say it best.
    fn show(&self, held: &Held) -> Option<String> {
        let _ = held;
        None
    }
}

/// Who decides what policy deferred.
pub trait Oracle: Send + Sync {
    /// Its name in logs and notices: `ask`, `deny`, `command:approve-all`.
    fn name(&self) -> String;

    /// Judges the holds of a view. A hold it does not mention is refused, unless it keeps.
    fn judge(&self, view: &View) -> Judgement;
}

/// What an oracle said.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// Answers, one a hold at most.
    Answers(Vec<Answer>),
    /// Nobody was there: everything stays held for a later review. Why.
    Keep(String),
    /// It failed: every hold it was asked about is refused. Why.
    Failed(String),
}

/// An oracle's answer for one hold.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The hold.
    pub hold: HoldId,
    /// Its manifest's digest as the view had it.
    pub manifest: Digest,
    /// What it said; `None` keeps the hold for later.
    pub verdict: Option<Verdict>,
    /// Why.
    pub reason: String,
}

/// What an oracle may see.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The principal's words.
    pub task: Vec<String>,
    /// The holds to be decided, oldest first.
    pub holds: Vec<ViewHold>,
    /// The trace that led to them, oldest first, one line an event.
    pub trace: Vec<String>,
}

/// One hold as an oracle sees it.
#[derive(Clone, Debug)]
pub struct ViewHold {
    /// The hold.
    pub hold: HoldId,
    /// Digest of its manifest: an answer is bound to it.
    pub manifest: Digest,
    /// What it would do.
    pub effect: Effect,
    /// Every reason the policy could not vouch for it, in words with origins.
    pub reasons: Vec<Reason>,
    /// What has to be resolved before it.
    pub depends: Vec<HoldId>,
    /// Level of what it carries, and where that came from.
    pub carries: Option<(Level, Vec<Origin>)>,
    /// The start of what would leave or be written, as text. Untrusted.
    pub excerpt: String,
}

/// What listeners are told, after it is in the log.
#[derive(Clone, Debug)]
pub enum Happening {
    /// An effect was released at once.
    Released {
        /// The event.
        event: EventId,
        /// What it did.
        effect: Effect,
    },
    /// An effect was refused at once.
    Refused {
        /// The event.
        event: EventId,
        /// What it wanted.
        effect: Effect,
        /// Why.
        refusal: Refusal,
        /// What the agent is told.
        notice: Notice,
    },
    /// An effect is held.
    Held(Box<Held>),
    /// A held effect was carried out, or its sink failed.
    Committed {
        /// The hold.
        held: Box<Held>,
        /// What happened, in a few words, or what went wrong.
        result: Result<String, String>,
    },
    /// A held effect was refused.
    Aborted {
        /// The hold.
        held: Box<Held>,
        /// Why.
        refusal: Refusal,
        /// What the agent is told.
        notice: Notice,
    },
    /// A hold is gone because the agent took it back.
    Withdrawn(HoldId),
    /// A limit on what is held is reached: these holds have to be resolved now.
    Due {
        /// Which, oldest first.
        holds: Vec<HoldId>,
        /// Which limit.
        limit: Limit,
    },
}

/// What time it is.
pub trait Clock: Send + Sync {
    /// Milliseconds since some fixed moment; never less than before.
    fn now_ms(&self) -> u64;
}

/// A source of chance the agent cannot guess.
pub trait Chance: Send + Sync {
    /// Sixteen fresh bytes.
    ///
    /// # Errors
    /// A text when the system has none to give; the effect is then refused.
    fn bytes16(&self) -> Result<[u8; 16], String>;
}

/// Short facts an adapter wants recorded beside an event: `{"status": "201"}`.
pub type Facts = BTreeMap<String, String>;
