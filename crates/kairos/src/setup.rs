//! A session on disk: what is needed to go on with it later, whatever happened to the policy's
//! files or the environment since.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::SessionDir;

use crate::exit::{Failure, Outcome, at};

/// Written before the agent starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Version of this file.
    pub(crate) format: u32,
    /// The command.
    pub(crate) command: Vec<String>,
    /// The workspace.
    pub(crate) workspace: PathBuf,
    /// What makes it another one than any other.
    pub(crate) identity: String,
    /// The policy in force, as text that reads back to the same policy.
    pub(crate) policy: String,
    /// Copy-on-write trees: name, and directory on the host.
    pub(crate) trees: Vec<(String, PathBuf)>,
    /// Variables that hold credentials outside, and the placeholders inside.
    pub(crate) placeholders: Vec<(String, String)>,
    /// Whether decisions bind.
    #[serde(default)]
    pub(crate) mode: RunMode,
}

/// Whether a session's decisions bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunMode {
    /// Everything is released and recorded
    Record,
    /// Everything is released; what would have been held or refused is recorded with it
    Shadow,
    /// What policy and oracle say holds
    #[default]
    Enforce,
}

impl RunMode {
    /// For the kernel: the mode's name, when decisions do not bind in it.
    pub(crate) fn unbound(self) -> Option<&'static str> {
        match self {
            Self::Record => Some("record"),
            Self::Shadow => Some("shadow"),
            Self::Enforce => None,
        }
    }
}

impl Setup {
    /// Writes it, for the owner only.
    pub(crate) fn write(&self, dir: &SessionDir) -> Outcome<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = dir.setup();
        let text = serde_json::to_vec_pretty(self).map_err(Failure::new)?;
        let mut file = std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(at("create", &path))?;
        file.write_all(&text)
            .and_then(|()| file.sync_all())
            .map_err(at("write", &path))
    }

    /// Reads it back.
    pub(crate) fn read(dir: &SessionDir) -> Outcome<Self> {
        let path = dir.setup();
        let text = std::fs::read(&path).map_err(at("read", &path))?;
        serde_json::from_slice(&text).map_err(|e| {
            Failure::new(format!(
                "`{}` is damaged: {e}; the session cannot be gone on with",
                path.display()
            ))
        })
    }
}

/// Held while a process runs or resolves a session; the system lets go of it when that ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: std::fs::File,
}

impl Lock {
    /// Takes the lock, or says that somebody else has it.
    pub(crate) fn take(dir: &SessionDir) -> Outcome<Option<Self>> {
        let path = dir.lock();
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(at("open", &path))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Failure::new(format!(
                "cannot lock `{}`: {error}",
                path.display()
            ))),
        }
    }

    /// Whether somebody runs the session now.
    pub(crate) fn is_taken(dir: &SessionDir) -> bool {
        matches!(Self::take(dir), Ok(None))
    }
}

/// Refuses state that the agent could reach.
pub(crate) fn apart(state: &Path, trees: &[(String, PathBuf)]) -> Outcome<()> {
    match trees.iter().find(|(_, root)| state.starts_with(root)) {
        None => Ok(()),
        Some((name, root)) => Err(Failure::new(format!(
            "the state directory `{}` lies inside the {name} tree `{}`, where the agent could reach it; \
             set XDG_STATE_HOME to a directory outside",
            state.display(),
            root.display()
        ))),
    }
}
