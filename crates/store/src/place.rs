//! Where sessions lie on disk: `$XDG_STATE_HOME/kairos/sessions/ID/` (`~/.local/state` by default).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, OsDisk};

/// The state directory of Kairos.
#[derive(Clone, Debug)]
pub struct Place {
    disk: Arc<dyn Disk>,
    root: PathBuf,
}

impl Place {
    /// From the environment's `XDG_STATE_HOME` and home directory.
    ///
    /// # Errors
    /// A text when neither is known.
    pub fn from_env(state_home: Option<&Path>, home: Option<&Path>) -> Result<Self, String> {
        match (state_home, home) {
            (Some(state), _) if state.is_absolute() => Ok(Self::on(OsDisk::shared(), state.join("kairos"))),
            (_, Some(home)) => Ok(Self::on(OsDisk::shared(), home.join(".local/state/kairos"))),
            _ => Err("neither XDG_STATE_HOME nor HOME is set; set one so that held effects have a place to be kept".to_string()),
        }
    }

    /// At a path of some disk.
    pub fn on(disk: Arc<dyn Disk>, root: PathBuf) -> Self {
        Self { disk, root }
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the directory of a new session.
    ///
    /// # Errors
    /// When it cannot be made, or is there already.
    pub fn create(&self, session: &str) -> io::Result<SessionDir> {
        let sessions = self.root.join("sessions");
        self.disk.make_dirs(&sessions)?;
        let path = sessions.join(session);
        self.disk.make_dir(&path)?;
        Ok(SessionDir { path })
    }

    /// The directory of a session: by full id, or by a unique beginning of it.
    ///
    /// # Errors
    /// A text that says what there is instead.
    pub fn find(&self, session: &str) -> Result<SessionDir, String> {
        let matching: Vec<String> = self
            .sessions()
            .into_iter()
            .filter(|id| id.starts_with(session))
            .collect();
        match matching.as_slice() {
            [one] => Ok(SessionDir {
                path: self.root.join("sessions").join(one),
            }),
            [] => Err(format!(
                "there is no session `{session}`; `kairos sessions` lists them"
            )),
            several => match several.iter().find(|id| *id == session) {
                Some(id) => Ok(SessionDir {
                    path: self.root.join("sessions").join(id),
                }),
                None => Err(format!(
                    "`{session}` could be any of {}; write more of it",
                    several.join(", ")
                )),
            },
        }
    }

    /// Ids of all sessions, oldest first (ids start with the time).
    pub fn sessions(&self) -> Vec<String> {
        let mut ids: Vec<String> = self
            .disk
            .list(&self.root.join("sessions"))
            .into_iter()
            .flatten()
            .filter_map(|name| name.into_string().ok())
            .collect();
        ids.sort();
        ids
    }
}

/// The directory of one session.
#[derive(Clone, Debug)]
pub struct SessionDir {
    path: PathBuf,
}

impl SessionDir {
    /// A directory that is known to be one (tests, tools).
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The session's id.
    pub fn id(&self) -> String {
        self.path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The log.
    pub fn log(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// Parked bytes.
    pub fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }

    /// Private state of a copy-on-write tree.
    pub fn tree(&self, name: &str) -> PathBuf {
        self.path.join("trees").join(name)
    }

    /// What is needed to go on with it later: tree roots, policy text.
    pub fn setup(&self) -> PathBuf {
        self.path.join("setup.json")
    }

    /// Held by the process that runs or reviews the session.
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Socket of a running session.
    pub fn control(&self) -> PathBuf {
        self.path.join("control.sock")
    }
}
