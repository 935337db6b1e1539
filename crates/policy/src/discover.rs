//! Which policy is in force. A file that lies in the workspace may have been put there by whoever
//! wrote the repository, so it counts only after the operator approved exactly this content.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use kernel::Digest;

use crate::error::{Finding, PolicyErrors};
use crate::load::{fingerprint, load};
use crate::loaded::Loaded;

/// Name of a policy file.
pub const FILE_NAME: &str = "kairos.toml";

/// Where policies and approvals are looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// The workspace.
    pub workspace: PathBuf,
    /// The operator's home.
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`, or `.config` below the home.
    pub config_home: PathBuf,
    /// The state directory of Kairos, where approvals are kept.
    pub state: PathBuf,
}

/// Where the policy in force came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOrigin {
    /// `--policy`.
    Given,
    /// The workspace's file, approved.
    Workspace,
    /// The operator's own file.
    Operator,
    /// No file.
    Default,
}

/// The policy in force.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// The policy.
    pub loaded: Loaded,
    /// Where it came from.
    pub from: PolicyOrigin,
    /// What the operator should know: a file that was passed over.
    pub note: Option<String>,
}

/// Finds the policy in force: the given file, the workspace's if it is approved, the operator's
/// own, the built-in default.
///
/// # Errors
/// When the file that is to be in force has mistakes, or an approved one changed.
pub fn discover(places: &Places, given: Option<&Path>) -> Result<Discovered, PolicyErrors> {
    let read = |path: Option<&Path>| load(path, &places.workspace, &places.home);
    if let Some(path) = given {
        return Ok(Discovered {
            loaded: read(Some(path))?,
            from: PolicyOrigin::Given,
            note: None,
        });
    }
    let mut note = None;
    let planted = places.workspace.join(FILE_NAME);
    if planted.symlink_metadata().is_ok() {
        match approval(places) {
            Some(approved) => {
                let loaded = read(Some(&planted))?;
                if fingerprint(&loaded) == approved {
                    return Ok(Discovered {
                        loaded,
                        from: PolicyOrigin::Workspace,
                        note: None,
                    });
                }
                return Err(PolicyErrors(vec![Finding::whole(
                    &planted,
                    "the workspace's policy changed since you approved it",
                    "read what changed, then run `kairos policy trust`; or name a file of your own with \
                     `--policy`",
                )]));
            }
            None => {
                note = Some(format!(
                    "{} is not in force, because nobody approved it; it may have come with the repository. Read \
                     it, then run `kairos policy trust` to put it in force",
                    planted.display()
                ));
            }
        }
    }
    let own = places.config_home.join("kairos").join(FILE_NAME);
    if own.exists() {
        return Ok(Discovered {
            loaded: read(Some(&own))?,
            from: PolicyOrigin::Operator,
            note,
        });
    }
    Ok(Discovered {
        loaded: read(None)?,
        from: PolicyOrigin::Default,
        note,
    })
}

/// Approves the workspace's policy as it is now, with every file that it names.
///
/// # Errors
/// When it has mistakes, is not there, or the approval cannot be kept.
pub fn trust(places: &Places) -> Result<Loaded, PolicyErrors> {
    let path = places.workspace.join(FILE_NAME);
    let loaded = load(Some(&path), &places.workspace, &places.home)?;
    write_approval(places, fingerprint(&loaded)).map_err(|error| {
        PolicyErrors(vec![Finding::whole(
            &approval_path(places),
            format!("the approval cannot be kept: {error}"),
            "make sure that the state directory can be written",
        )])
    })?;
    Ok(loaded)
}

/// Takes the approval of the workspace's policy back.
///
/// # Errors
/// When there is one and it cannot be removed.
pub fn distrust(places: &Places) -> std::io::Result<()> {
    match fs::remove_file(approval_path(places)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn approval(places: &Places) -> Option<Digest> {
    let text = fs::read_to_string(approval_path(places)).ok()?;
    // An approval that cannot be read is one that nothing matches.
    Some(
        text.lines()
            .next()
            .and_then(Digest::from_hex)
            .unwrap_or_default(),
    )
}

fn write_approval(places: &Places, approved: Digest) -> std::io::Result<()> {
    let path = approval_path(places);
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let partial = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial)?;
    writeln!(file, "{}\n{}", approved.hex(), places.workspace.display())?;
    file.sync_all()?;
    fs::rename(&partial, &path)
}

/// One approval a workspace, by the workspace's real path.
fn approval_path(places: &Places) -> PathBuf {
    let workspace =
        fs::canonicalize(&places.workspace).unwrap_or_else(|_| places.workspace.clone());
    let name = Digest::of(workspace.as_os_str().as_encoded_bytes()).hex();
    places.state.join("trusted-policies").join(name)
}
