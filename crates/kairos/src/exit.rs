//! Exit statuses and errors for people.

use std::fmt;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done.
    Success,
    /// A check found something, or a question has the answer no.
    Negative,
    /// The agent's own status.
    Agent(u8),
    /// The agent's status was 0 and effects are still held.
    Held,
    /// The agent's status was 0 and a released file change could not be carried out: mostly a
    /// conflict with the owner's own change.
    Conflict,
    /// Kairos itself failed; nothing ran, or it was stopped.
    Failed,
    /// The agent's program cannot be executed.
    NotExecutable,
    /// The agent's program is not there.
    NotFound,
}

impl Status {
    /// As the system sees it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Negative => 1,
            Self::Agent(code) => code,
            Self::Held => 75,
            Self::Conflict => 74,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

/// Something that a person has to be told before the program ends.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How the program ends.
    pub(crate) status: Status,
    /// What, where, and what to do, without a prefix.
    pub(crate) message: String,
}

impl Failure {
    /// Kairos failed.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self {
            status: Status::Failed,
            message: message.to_string(),
        }
    }

    /// The policy has mistakes.
    pub(crate) fn policy(errors: policy::PolicyErrors) -> Self {
        Self::new(format!("the policy cannot be used\n{}", errors.coloured()))
    }
}

/// Words for an I/O error at a path.
pub(crate) fn at(what: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Failure {
    let text = format!("cannot {what} `{}`", path.display());
    move |error| Failure::new(format!("{text}: {error}"))
}

pub(crate) type Outcome<T> = Result<T, Failure>;
