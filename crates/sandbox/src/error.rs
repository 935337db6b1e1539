//! Why an agent could not be confined or started.

use crate::doctor::Check;

/// Every error says what failed and what to do about it; none of them leaves a process behind.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The plan cannot be built.
    #[error("invalid plan: {message}")]
    Plan {
        /// What is wrong with it.
        message: String,
    },
    /// The host lacks something that the boundary needs.
    #[error("{}: {}\n{}", check.name, check.found, check.remedy)]
    Host {
        /// The check of [`crate::doctor`] that names the lack and its remedy.
        check: Check,
    },
    /// A step of the set-up failed.
    #[error("cannot {step}: {message}")]
    Step {
        /// What was being done.
        step: String,
        /// What the system answered.
        message: String,
    },
    /// The agent's program does not exist.
    #[error("cannot run `{program}`: not found inside the boundary")]
    NotFound {
        /// As the plan names it.
        program: String,
    },
    /// The agent's program exists and cannot be executed.
    #[error("cannot run `{program}`: {message}")]
    NotExecutable {
        /// As the plan names it.
        program: String,
        /// What the system answered.
        message: String,
    },
}

impl SandboxError {
    /// The exit status that a shell user expects: 127 and 126 for a command that cannot be run,
    /// 125 when the boundary itself failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Plan { .. } | Self::Host { .. } | Self::Step { .. } => 125,
        }
    }

    pub(crate) fn step(step: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::Step {
            step: step.into(),
            message: error.to_string(),
        }
    }
}

/// Names the step that an error belongs to.
pub(crate) trait During<T> {
    fn during(self, step: &str) -> Result<T, SandboxError>;
    fn during_with(self, step: impl FnOnce() -> String) -> Result<T, SandboxError>;
}

impl<T, E: std::fmt::Display> During<T> for Result<T, E> {
    fn during(self, step: &str) -> Result<T, SandboxError> {
        self.map_err(|error| SandboxError::step(step, error))
    }
    fn during_with(self, step: impl FnOnce() -> String) -> Result<T, SandboxError> {
        self.map_err(|error| SandboxError::step(step(), error))
    }
}
