//! Where things are: home, state, workspace.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::Place;

use crate::exit::{Failure, Outcome};

/// What the environment says.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The principal's home.
    pub(crate) home: PathBuf,
    /// Where sessions are kept.
    pub(crate) place: Place,
}

impl Surroundings {
    /// Reads the environment.
    pub(crate) fn read() -> Outcome<Self> {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute());
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let place = Place::from_env(state.as_deref(), home.as_deref()).map_err(Failure::new)?;
        let home = home.ok_or_else(|| {
            Failure::new("HOME is not set to an absolute path; set it to your home directory")
        })?;
        Ok(Self {
            home: home.canonicalize().unwrap_or(home),
            place,
        })
    }
}

/// A workspace that exists, in canonical form.
pub(crate) fn workspace(given: Option<&Path>) -> Outcome<PathBuf> {
    let path = match given {
        Some(path) => path.to_path_buf(),
        None => std::env::current_dir().map_err(|e| {
            Failure::new(format!(
                "cannot find the current directory: {e}; name one with --workspace"
            ))
        })?,
    };
    let real = path.canonicalize().map_err(|e| {
        Failure::new(format!(
            "cannot use the workspace `{}`: {e}; name an existing directory with --workspace",
            path.display()
        ))
    })?;
    if !real.is_dir() {
        return Err(Failure::new(format!(
            "the workspace `{}` is not a directory; name one with --workspace",
            path.display()
        )));
    }
    outside_the_system(&real, "workspace")?;
    Ok(real)
}

/// Refuses a tree that is, holds or lies in a part of the system: what Kairos itself shows the
/// agent there would look like the agent's changes.
pub(crate) fn outside_the_system(path: &Path, what: &str) -> Outcome<()> {
    let system = [
        "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin",
        "/sys", "/usr", "/var/run",
    ];
    let own = ["/usr/src", "/usr/local/src"];
    let mut places = system.iter();
    let found = places.find(|place| path.starts_with(place) || Path::new(place).starts_with(path));
    match found {
        Some(place) if !own.iter().any(|own| path.starts_with(own)) => Err(Failure::new(format!(
            "the {what} `{}` cannot be used: it is, holds or lies in `{place}`, which belongs to the system; \
             name a directory of your own",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// What makes this workspace another one than any other: its path and the directory behind it.
pub(crate) fn identity(workspace: &Path) -> Outcome<String> {
    let meta = std::fs::metadata(workspace).map_err(crate::exit::at("look at", workspace))?;
    Ok(format!(
        "{}#{}:{}",
        workspace.display(),
        meta.dev(),
        meta.ino()
    ))
}

/// Now, RFC 3339 with milliseconds, UTC.
pub(crate) fn now() -> String {
    let format = time::macros::format_description!(
        "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
    );
    time::OffsetDateTime::now_utc()
        .format(format)
        .unwrap_or_default()
}

/// A fresh session id: the time, so that a list is in order, and four characters of chance.
pub(crate) fn session_id(chance: &[u8; 16]) -> String {
    let format = time::macros::format_description!(
        "[year][month][day]-[hour][minute][second][subsecond digits:3]"
    );
    let time = time::OffsetDateTime::now_utc()
        .format(format)
        .unwrap_or_default();
    let tail: String = chance
        .iter()
        .take(2)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{time}-{tail}")
}
