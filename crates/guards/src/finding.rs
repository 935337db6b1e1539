//! What a guard may find. What may follow from a finding is part of its type: a guard returns
//! `Finding<Stops>`, `Finding<Corrects>` or `Finding<Warns>`, and there is no way from a lesser power
//! to a greater one.
//!
//! ```compile_fail
//! fn stop(_: guards::Finding<guards::Stops>) {}
//! let trace = guards::Trace::default();
//! for warning in guards::agent_intent(&trace) {
//!     stop(warning);
//! }
//! ```
//!
//! ```
//! fn stop(_: guards::Finding<guards::Stops>) {}
//! let trace = guards::Trace::default();
//! for violation in guards::sensitive_egress(&trace) {
//!     stop(violation);
//! }
//! ```

use std::collections::BTreeMap;
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// What may follow from a finding.
pub trait Power: sealed::Sealed {
    /// The guards' word for it.
    const WORD: &'static str;
}

/// The action may be stopped, and the session as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {}
/// The action may be declined, or the agent brought back to its task; never more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrects {}
/// It is told, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warns {}

impl sealed::Sealed for Stops {}
impl sealed::Sealed for Corrects {}
impl sealed::Sealed for Warns {}
impl Power for Stops {
    const WORD: &'static str = "stop";
}
impl Power for Corrects {
    const WORD: &'static str = "steer";
}
impl Power for Warns {
    const WORD: &'static str = "warn";
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A secret is about to leave.
    SensitiveEgress,
    /// Something encoded is about to leave.
    OutboundBlob,
    /// It says that it will evade.
    IntentEvade,
    /// It says that it will destroy.
    IntentDestroy,
    /// It says that it will take data out.
    IntentExfiltrate,
    /// It says that it will deceive.
    IntentDeceive,
    /// A host where it was stopped before.
    WatchedHost,
    /// A host under one domain with two where it was stopped before.
    WatchedFamily,
    /// A file that held the instruction before.
    WatchedSource,
    /// What it does is not what it was asked to do.
    Drift,
}

impl Code {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SensitiveEgress => "sensitive-egress",
            Self::OutboundBlob => "outbound-blob",
            Self::IntentEvade => "intent-evade",
            Self::IntentDestroy => "intent-destroy",
            Self::IntentExfiltrate => "intent-exfiltrate",
            Self::IntentDeceive => "intent-deceive",
            Self::WatchedHost => "watched-host",
            Self::WatchedFamily => "watched-family",
            Self::WatchedSource => "watched-source",
            Self::Drift => "drift",
        }
    }

    /// The guard that finds it.
    pub fn guard(self) -> &'static str {
        match self {
            Self::SensitiveEgress => "sensitive-egress",
            Self::OutboundBlob => "outbound-blob",
            Self::IntentEvade
            | Self::IntentDestroy
            | Self::IntentExfiltrate
            | Self::IntentDeceive => "agent-intent",
            Self::WatchedHost | Self::WatchedFamily | Self::WatchedSource => "learned-watch",
            Self::Drift => "semantic-intent",
        }
    }
}

/// How sure a guard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Worth a look.
    Warn,
    /// An invariant was about to be crossed.
    Violation,
}

/// Names of facts; each has a form of its own, in [`crate::reflection`].
pub type Facts = BTreeMap<&'static str, String>;

/// One finding. Facts are lifted from the trace as they are; none of them is ever a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<P> {
    pub(crate) code: Code,
    pub(crate) severity: Severity,
    pub(crate) step: usize,
    pub(crate) facts: Facts,
    pub(crate) power: PhantomData<P>,
}

impl<P: Power> Finding<P> {
    /// Only guards make findings, each of its own power.
    pub(crate) fn new(code: Code, severity: Severity, step: usize, facts: Facts) -> Self {
        Self {
            code,
            severity,
            step,
            facts,
            power: PhantomData,
        }
    }

    /// What was found.
    pub fn code(&self) -> Code {
        self.code
    }
}

/// A finding of any power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Any {
    /// One that may stop.
    Stop(Finding<Stops>),
    /// One that may correct.
    Correct(Finding<Corrects>),
    /// One that is only told.
    Warn(Finding<Warns>),
}

impl Any {
    /// What was found.
    pub fn code(&self) -> Code {
        match self {
            Self::Stop(finding) => finding.code,
            Self::Correct(finding) => finding.code,
            Self::Warn(finding) => finding.code,
        }
    }

    /// How sure the guard is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Stop(finding) => finding.severity,
            Self::Correct(finding) => finding.severity,
            Self::Warn(finding) => finding.severity,
        }
    }

    /// The step it is about.
    pub fn step(&self) -> usize {
        match self {
            Self::Stop(finding) => finding.step,
            Self::Correct(finding) => finding.step,
            Self::Warn(finding) => finding.step,
        }
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        match self {
            Self::Stop(finding) => &finding.facts,
            Self::Correct(finding) => &finding.facts,
            Self::Warn(finding) => &finding.facts,
        }
    }

    /// The most that may follow from it: `stop`, `steer` or `warn`.
    pub fn power(&self) -> &'static str {
        match self {
            Self::Stop(_) => Stops::WORD,
            Self::Correct(_) => Corrects::WORD,
            Self::Warn(_) => Warns::WORD,
        }
    }
}

impl std::fmt::Display for Any {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code().name())?;
        for (name, value) in self.facts() {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}
