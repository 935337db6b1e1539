//! Release, refuse, defer. Only this crate makes a [`Permit`]; it is not `Clone`, names the digest
//! of exactly one manifest, and is used up by being turned into a lease.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::event::{Digest, EventId, HoldId, Source};
use crate::label::Level;
use crate::value::{Kind, Origin};

/// What the policy says of an effect.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It vouches for it; why, in a few words.
    Release(String),
    /// A rule forbids it.
    Refuse(Refusal),
    /// It cannot say; every reason.
    Defer(Vec<Reason>),
}

impl Decision {
    /// What follows of it, in a mode in which decisions do not bind or in none. What is malformed
    /// or cannot be decided is refused in any mode.
    pub(crate) fn bound(self, unbound: Option<&'static str>) -> Self {
        let Some(mode) = unbound else { return self };
        let would = match &self {
            Self::Defer(reasons) => {
                let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                format!("held: {}", reasons.join("; "))
            }
            Self::Refuse(refusal @ Refusal::Rule { .. }) => format!("refused: {refusal}"),
            Self::Release(_) | Self::Refuse(_) => return self,
        };
        Self::Release(format!("{mode}: it would be {would}"))
    }
}

/// Why an effect was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A rule of the policy forbids it.
    Rule {
        /// The rule's name.
        rule: String,
        /// What the rule's author wants to be said, if anything.
        says: Option<String>,
    },
    /// An oracle refused it.
    Oracle {
        /// Which oracle.
        oracle: String,
        /// Its reason.
        reason: String,
    },
    /// Something it depends on was refused.
    Depends(HoldId),
    /// It is malformed or contradicts itself (host names that disagree, an ambiguous request).
    Malformed(String),
    /// Something in the monitor failed; in doubt nothing leaves.
    Failed(String),
    /// Nobody was there to decide a request whose answer could not wait.
    NobodyThere(Vec<Reason>),
    /// More would be held than the policy allows.
    Limit(Limit),
}

/// A limit on what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Number of holds.
    Holds,
    /// Sum of parked bytes.
    Bytes,
    /// How long a hold stays open.
    Age,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "as many effects are held as the policy allows",
            Self::Bytes => "as many bytes are held as the policy allows",
            Self::Age => "it was held as long as the policy allows",
        })
    }
}

impl Refusal {
    /// How [`Refusal::Depends`] begins in words.
    pub const DEPENDS: &str = "it depends on ";
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule {
                rule,
                says: Some(says),
            } => write!(f, "rule `{rule}` forbids it: {says}"),
            Self::Rule { rule, says: None } => write!(f, "rule `{rule}` forbids it"),
            Self::Oracle { oracle, reason } => write!(f, "{oracle} refused it: {reason}"),
            Self::Depends(hold) => write!(f, "{}{hold}, which was refused", Self::DEPENDS),
            Self::Malformed(what) => write!(f, "it cannot go out as it is: {what}"),
            Self::Failed(what) => write!(f, "it could not be decided: {what}"),
            Self::Limit(limit) => write!(f, "{limit}"),
            Self::NobodyThere(reasons) => {
                f.write_str("nobody was there to decide it in time")?;
                for reason in reasons {
                    write!(f, "; {reason}")?;
                }
                Ok(())
            }
        }
    }
}

/// Why the policy could not vouch for an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The policy does not name this party.
    UnknownParty(String),
    /// The policy does not name this tool.
    UnknownTool(String),
    /// The policy names the party, but not for this operation.
    NotForOperation {
        /// The party.
        party: String,
        /// The operation.
        operation: String,
    },
    /// A steering value does not derive from anything trusted.
    NotDerivable {
        /// Which field it steers: `host`, `url`, `path`, ...
        field: String,
        /// Its kind.
        kind: Kind,
        /// The value, shortened.
        value: String,
        /// Where the agent met it, best first; empty when it never did.
        origins: Vec<Origin>,
    },
    /// It carries more than its target is cleared for.
    Clearance {
        /// The level of what it carries.
        level: Level,
        /// The target's clearance.
        clearance: Level,
        /// Where the sensitive tokens came from.
        origins: Vec<Origin>,
    },
    /// What is written would be executed later.
    ExecutesLater {
        /// What kind of place it is: `git hook`, `CI workflow`, ...
        place: String,
    },
    /// It depends on holds that are not resolved.
    After(Vec<HoldId>),
    /// Found undecided after a crash.
    Recovered,
}

impl Reason {
    /// How [`Reason::After`] begins in words: a report can tell what only waits from what has a
    /// reason of its own.
    pub const AFTER: &str = "it came after what is still held: ";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownParty(host) => write!(f, "the policy does not name `{host}`"),
            Self::UnknownTool(name) => write!(f, "the policy does not name the tool `{name}`"),
            Self::NotForOperation { party, operation } => {
                write!(f, "the policy names `{party}`, but not for {operation}")
            }
            Self::NotDerivable {
                field,
                value,
                origins,
                ..
            } => {
                write!(f, "{field} `{value}` ")?;
                match origins.first() {
                    Some(origin) if origin.source == Source::Task => {
                        f.write_str("stands in your task, but not as what it would steer here")
                    }
                    Some(origin) => write!(f, "comes from {origin}, not from your task"),
                    None => f.write_str("appears in nothing that is trusted for it"),
                }
            }
            Self::Clearance {
                level,
                clearance,
                origins,
            } => {
                write!(f, "it carries {level} content")?;
                if let Some(origin) = origins.first() {
                    write!(f, " from {origin}")?;
                }
                write!(f, "; its target is cleared for {clearance}")
            }
            Self::ExecutesLater { place } => write!(f, "it would run later: {place}"),
            Self::After(holds) => {
                f.write_str(Self::AFTER)?;
                for (i, hold) in holds.iter().enumerate() {
                    write!(f, "{}{hold}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Recovered => f.write_str("it was not decided when the session was cut off"),
        }
    }
}

/// What an oracle is asked about one hold.
#[derive(Clone, Debug)]
pub struct Question {
    /// The hold.
    pub hold: HoldId,
    /// Every reason the policy could not vouch for it.
    pub reasons: Vec<Reason>,
    /// Other holds that have to be resolved first.
    pub depends: Vec<HoldId>,
    /// False when the policy vouches for the effect itself and only its order keeps it waiting.
    pub needs_oracle: bool,
}

/// The kernel's one-use leave for exactly one manifest digest.
///
/// There is no way to make, copy or change one outside this crate:
///
/// ```compile_fail
/// let forged = kernel::Permit::new(kernel::EventId(1), kernel::Digest::default(), String::new());
/// ```
/// ```compile_fail
/// fn twice(permit: kernel::Permit) -> (kernel::Permit, kernel::Permit) {
///     (permit.clone(), permit)
/// }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is dropped is an effect that never happens; turn it into a lease"]
pub struct Permit {
    event: EventId,
    manifest: Digest,
    why: String,
    _sealed: Sealed,
}

#[derive(Debug)]
struct Sealed;

impl Permit {
    pub(crate) fn new(event: EventId, manifest: Digest, why: String) -> Self {
        Self {
            event,
            manifest,
            why,
            _sealed: Sealed,
        }
    }

    /// The event it permits.
    pub fn event(&self) -> EventId {
        self.event
    }

    /// Digest of the manifest it permits, and of nothing else.
    pub fn manifest(&self) -> Digest {
        self.manifest
    }

    /// Who or what vouches for it.
    pub fn why(&self) -> &str {
        &self.why
    }
}
