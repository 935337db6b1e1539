//! Notices: five guards over a session's trace, what is done about what they find, and what is kept
//! of it for the next session. Pure: the same trace gives the same findings, live and offline.
//!
//! What is noticed here is evidence. It can make Kairos refuse, ask or say more; nothing here ever
//! releases anything.
//!
//! Modules in reading order:

/// What happened, step by step.
pub mod trace;
/// Places and forms of secrets.
pub mod secrets;
/// What a shell command would run.
pub mod shell;
/// Commands that run other commands.
mod wrap;
/// What well-known programs do.
mod programs;
/// The hosts that a command names.
mod hosts;
/// What leaves the machine by a command: eight ways out.
pub mod egress;
/// What a guard may find, and what may follow from it.
pub mod finding;
/// A secret is about to leave.
mod sensitive_egress;
/// Something encoded is about to leave.
mod outbound_blob;
/// The agent says that it means harm.
mod agent_intent;
/// Somewhere this agent has been stopped before.
mod learned_watch;
/// The agent does somebody else's work.
mod semantic_intent;
/// Accept, decline, steer, interrupt: decided in one place.
pub mod outcome;
/// What is kept of findings.
pub mod reflection;

pub use agent_intent::agent_intent;
pub use finding::{Any, Code, Corrects, Finding, Stops, Warns};
pub use learned_watch::learned_watch;
pub use outbound_blob::outbound_blob;
pub use outcome::{Decider, Outcome, steering};
pub use reflection::{Memory, Reflection, Watch};
pub use semantic_intent::semantic_intent;
pub use sensitive_egress::sensitive_egress;
pub use trace::{Settings, Step, Trace};

/// Which guards are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Guards {
    /// None.
    Off,
    /// `sensitive-egress` and `outbound-blob`.
    #[default]
    Egress,
    /// All five.
    All,
}

impl std::str::FromStr for Guards {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "egress" => Ok(Self::Egress),
            "all" => Ok(Self::All),
            _ => Err(format!(
                "`{text}` is no choice of guards; write `off`, `egress` or `all`"
            )),
        }
    }
}

/// Everything that the chosen guards find in a trace, in the order of its steps.
#[must_use]
pub fn findings(trace: &Trace, guards: Guards) -> Vec<Any> {
    let mut all: Vec<Any> = Vec::new();
    if guards != Guards::Off {
        all.extend(sensitive_egress(trace).into_iter().map(Any::Stop));
        all.extend(outbound_blob(trace).into_iter().map(Any::Stop));
    }
    if guards == Guards::All {
        all.extend(agent_intent(trace).into_iter().map(Any::Warn));
        all.extend(learned_watch(trace).into_iter().map(Any::Warn));
        all.extend(semantic_intent(trace).into_iter().map(Any::Correct));
    }
    all.sort_by_key(|finding| (finding.step(), finding.code()));
    all
}
