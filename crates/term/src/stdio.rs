//! The three streams: what Kairos was given, and what the agent gets instead.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, fstat};
use rustix::termios::isatty;
use std::io;
use std::path::PathBuf;

/// The streams that Kairos was started with. Held as duplicates.
#[derive(Debug)]
pub struct Stdio {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Stdio {
    /// This process's own stdin, stdout and stderr.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn detect() -> io::Result<Self> {
        Self::duplicate(&io::stdin(), &io::stdout(), &io::stderr())
    }

    /// Other descriptors in their place.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn duplicate(
        stdin: &impl AsFd,
        stdout: &impl AsFd,
        stderr: &impl AsFd,
    ) -> io::Result<Self> {
        Ok(Self {
            stdin: stdin.as_fd().try_clone_to_owned()?,
            stdout: stdout.as_fd().try_clone_to_owned()?,
            stderr: stderr.as_fd().try_clone_to_owned()?,
        })
    }

    /// Whether a person can be asked here: input and output are terminals.
    #[must_use]
    pub fn is_interactive(&self) -> bool {
        isatty(&self.stdin) && isatty(&self.stdout)
    }

    pub(crate) fn arrangement(&self) -> Arrangement {
        let stdout_tty = isatty(&self.stdout);
        Arrangement {
            keyboard: isatty(&self.stdin),
            pty: stdout_tty,
            stderr: if isatty(&self.stderr) {
                if stdout_tty {
                    Stderr::Pty
                } else {
                    Stderr::Filtered
                }
            } else if !stdout_tty && same_file(&self.stdout, &self.stderr) {
                Stderr::WithStdout
            } else {
                Stderr::Pipe
            },
        }
    }

    /// Whether stdin is a regular file, whose unread rest can be given back at the end.
    pub(crate) fn stdin_is_file(&self) -> bool {
        fstat(&self.stdin).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    }
}

/// What the agent is started with. Drop it in Kairos once the agent has it, or the end of its
/// output is never seen.
#[derive(Debug)]
pub struct AgentStdio {
    /// To become descriptor 0.
    pub stdin: OwnedFd,
    /// To become descriptor 1.
    pub stdout: OwnedFd,
    /// To become descriptor 2.
    pub stderr: OwnedFd,
    /// The agent's side of the pseudo-terminal, if there is one: to become the controlling terminal
    /// (`setsid`, `TIOCSCTTY`). For Ctrl-Z to work the agent's process group must not be the one
    /// of the session leader: a parent in the same session has to remain, and `tcsetpgrp` has to put
    /// the agent's group in the foreground.
    pub controlling: Option<OwnedFd>,
    /// Where the pseudo-terminal is in the host's `/dev/pts`, for a sandbox that wants to bind it.
    pub pty_path: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrangement {
    /// stdin is a terminal: what comes from it is typed by the principal.
    pub(crate) keyboard: bool,
    /// stdout is a terminal, so the agent gets a pseudo-terminal.
    pub(crate) pty: bool,
    pub(crate) stderr: Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stderr {
    /// On the pseudo-terminal.
    Pty,
    /// A pipe whose bytes go to a terminal, so through the filter.
    Filtered,
    /// A pipe whose bytes pass unchanged.
    Pipe,
    /// One pipe with stdout, so that `2>&1` keeps its order.
    WithStdout,
}

fn same_file(a: &OwnedFd, b: &OwnedFd) -> bool {
    match (fstat(a), fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}
