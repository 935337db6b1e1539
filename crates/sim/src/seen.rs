//! What the witness writes down, in the order in which it happened. Checkers see nothing else.

use std::sync::{Arc, Mutex, PoisonError};

use kernel::{Digest, Effect, EventId, HoldId};
use store::Record;

/// Which proposal: the digest of its payload, which the agent makes unique. Event numbers are not enough: those of
/// records that a power cut took are given out again.
pub type Name = Digest;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A line was appended to the log; in memory, maybe not on disk.
    Wrote(Vec<u8>),
    /// As [`Seen::Wrote`], read: how often a record of its line can be seen is up to the disk.
    Logged(Record),
    /// Everything in the log up to here survives a power cut.
    Synced,
    /// The log's file refused an operation.
    LogFault,
    /// The agent proposes.
    Trying(Trying),
    /// The monitor answered.
    Decided {
        /// Which proposal.
        name: Name,
        /// What it said.
        decision: Decided,
    },
    /// An oracle's answer is about to be given to the monitor.
    Judging {
        /// The hold.
        hold: HoldId,
        /// The proposal that the oracle saw.
        name: Name,
        /// The manifest it names.
        manifest: Digest,
        /// Its verdict.
        release: bool,
    },
    /// The monitor said what it makes of it.
    Judged {
        /// The hold.
        hold: HoldId,
        /// The manifest the answer named.
        manifest: Digest,
        /// The verdict.
        release: bool,
        /// Whether it was acted upon.
        accepted: bool,
    },
    /// An oracle failed when asked about these.
    OracleFailed(Vec<Name>),
    /// The agent takes a hold back.
    Withdrawing(HoldId),
    /// A hold ran out of time.
    Expiring(HoldId),
    /// There was no chance to be had.
    ChanceFailed,
    /// A sink did it: visible outside from now on.
    Observed(Observed),
    /// A channel was told to drop a hold.
    Dropped(HoldId),
    /// A sink could not do what was released: the owner had changed the file meanwhile, the machine stopped. It counts
    /// as resolved.
    NotDone(Name),
    /// Everything held at this moment.
    Holding(Vec<HeldNow>),
    /// Another policy is put in force; what is held is decided again until the next thing that is seen to be held.
    Policy,
    /// The places to which labels stick for good.
    Labels(Vec<kernel::Place>),
    /// The process ends in good order.
    Stopping,
    /// The process dies; with the power, or alone.
    Crash {
        /// Whether the power went too.
        power: bool,
    },
    /// The log's bytes as they are after a crash.
    Survived(Vec<u8>),
    /// What a session could not be gone on with, and why.
    Unrecoverable(String),
    /// Another process goes on.
    Recovered(Recovered),
    /// What the log alone says is held, by the policy in force.
    Replayed {
        /// Everything held.
        held: Vec<HeldNow>,
        /// Records whose decision is not repeated.
        differences: Vec<String>,
    },
}

/// A proposal.
#[derive(Clone, Debug)]
pub struct Trying {
    /// Its name.
    pub name: Name,
    /// What is proposed.
    pub effect: Effect,
    /// Found after a crash.
    pub in_doubt: bool,
    /// The holds that it demonstrably builds on: the agent read what they staged, or carries the mark of their stub.
    pub builds_on: Vec<HoldId>,
    /// Whether irreversible effects wait for all that came before.
    pub conservative: bool,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// At once.
    Released {
        /// The manifest of the lease.
        manifest: Digest,
    },
    /// Refused.
    Refused,
    /// Not decided, because something failed: it does not happen now. What was recorded of it before that may be held
    /// by another process.
    Failed,
    /// Held.
    Held(HeldNow),
}

/// A hold as it can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNow {
    /// The hold.
    pub hold: HoldId,
    /// The proposal.
    pub name: Name,
    /// Its manifest.
    pub manifest: Digest,
    /// What it waits for.
    pub depends: Vec<HoldId>,
    /// Whether only its order keeps it.
    pub vouched: bool,
    /// Whether its parked bytes are there and right.
    pub parked: bool,
}

/// Something became observable.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The event of the lease.
    pub event: EventId,
    /// The manifest of the lease.
    pub manifest: Digest,
    /// The proposal whose bytes left.
    pub name: Name,
    /// What was done, as the sink understood it.
    pub done: String,
    /// Whether it can be taken back (a file change) or changes nothing (a request that only asks).
    pub harmless: bool,
    /// What was overwritten, if it is a file; the digest of what the agent saw, and of what was there.
    pub over: Option<(Option<Digest>, Option<Digest>)>,
}

/// What another process found.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Everything held.
    pub held: Vec<HeldNow>,
    /// Spent, and nothing known of the outcome.
    pub unknown: Vec<EventId>,
    /// Resolved, and the channel not done with it.
    pub unfinished: Vec<EventId>,
    /// Records whose decision was not repeated, when nothing is missing that it was made from.
    pub differences: Vec<String>,
}

/// The witness's book, shared by everything outside.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Vec<Seen>>>);

impl Witness {
    /// Writes down.
    pub fn saw(&self, seen: Seen) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(seen);
    }

    /// Takes what was written since the last time.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An effect in words that leave nothing of it out; what a sink did has to read the same.
pub fn wording(effect: &Effect) -> String {
    format!(
        "{} {} {} {}/{} base {:?} {:?}",
        effect.channel.name(),
        effect.operation.name(),
        effect.object,
        effect.payload.digest.hex(),
        effect.payload.bytes,
        effect.base,
        effect.fields,
    )
}
