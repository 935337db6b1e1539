//! Reflections on disk: one file for each agent and workspace, in Kairos' own state, which no agent
//! can see.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use guards::{Any, Memory, Trace};

/// Reads a memory; an empty one when there is none.
pub(crate) fn read(path: &Path) -> Result<Memory, String> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
            format!(
                "the memory `{}` is damaged: {e}; `kairos memory forget --all` starts it anew",
                path.display()
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Memory::default()),
        Err(error) => Err(format!(
            "the memory `{}` cannot be read: {error}",
            path.display()
        )),
    }
}

/// Keeps what findings teach.
pub(crate) fn learn(
    path: &Path,
    found: &[Any],
    trace: &Trace,
    conversation: &str,
) -> Result<(), String> {
    if found.is_empty() {
        return Ok(());
    }
    let _lock = lock(path)?;
    let before = read(path)?;
    let mut memory = before.clone();
    for finding in found {
        memory.learn(finding, trace, conversation);
    }
    if memory == before {
        Ok(())
    } else {
        write(path, &memory)
    }
}

/// Changes a memory while nobody else does.
pub(crate) fn change(
    path: &Path,
    change: impl FnOnce(&mut Memory) -> usize,
) -> Result<usize, String> {
    let _lock = lock(path)?;
    // One that is damaged can still be forgotten.
    let mut memory = read(path).unwrap_or_default();
    let n = change(&mut memory);
    write(path, &memory)?;
    Ok(n)
}

fn write(path: &Path, memory: &Memory) -> Result<(), String> {
    let wrong = |e: &dyn std::fmt::Display| {
        format!("the memory `{}` cannot be written: {e}", path.display())
    };
    let text = serde_json::to_vec_pretty(memory).map_err(|e| wrong(&e))?;
    let fresh = path.with_extension("part");
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(|e| wrong(&e))?;
    file.write_all(&text)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|e| wrong(&e))
}

fn lock(path: &Path) -> Result<File, String> {
    let wrong =
        |e: &dyn std::fmt::Display| format!("the memory `{}` cannot be used: {e}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|e| wrong(&e))?;
    }
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path.with_extension("lock"))
        .map_err(|e| wrong(&e))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).map_err(|e| wrong(&e))?;
    Ok(file)
}
