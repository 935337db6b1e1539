//! Where the owner changed a path that the agent changed too: the owner's version is in place, the
//! agent's is kept, and the owner chooses. For text both changes are put together, as an offer.

use std::fs::File;

use rustix::io::{Errno, Result};
use serde::Serialize;

use crate::attr::{Kind, Version};
use crate::bytes::{self, beginning, digest};
use crate::delta::{Content, Delta, New};
use crate::path;
use crate::settle::Pending;
use crate::trees::Trees;

/// Larger files are not merged.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// One path that both changed.
#[derive(Clone, Debug, Serialize)]
pub struct Conflict {
    /// The tree's name.
    pub tree: String,
    /// Path below its root.
    pub path: String,
    /// What the owner did: `changed`, `created`, `removed` or `left` it.
    pub owner: &'static str,
    /// What the agent did.
    pub agent: &'static str,
    /// Both changes put together.
    pub merge: Merge,
    #[serde(skip)]
    pending: Pending,
    #[serde(skip)]
    now: Option<Version>,
}

/// Both changes put together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Merge {
    /// They touch different lines.
    Clean {
        /// The result.
        #[serde(skip)]
        text: Vec<u8>,
    },
    /// They touch the same lines, which are marked as git marks them.
    Marked {
        /// The result, with marks.
        #[serde(skip)]
        text: Vec<u8>,
    },
    /// They cannot be put together.
    No {
        /// Why.
        why: &'static str,
    },
}

/// What the owner wants at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Their own version: the agent's is discarded.
    Owner,
    /// The agent's version.
    Agent,
    /// Both changes, put together without marks.
    Merged,
}

impl Trees {
    /// Paths whose staged change was not carried out, because the owner changed them or because the host
    /// refused it (a full disk), and that are not held (what is held is decided first).
    pub fn conflicts(&self) -> Vec<Conflict> {
        let _pass = self.pass.lock();
        let held = self.holds.lock();
        let mut found = Vec::new();
        for pending in self.staged() {
            if held.contains_key(&(pending.tree, pending.delta.path.clone())) {
                continue;
            }
            let Some(host) = self.hosts.get(pending.tree) else {
                continue;
            };
            let delta = &pending.delta;
            let Ok(now) = host.base.version(&delta.path) else {
                continue;
            };
            let owner = match (&delta.base, &now) {
                (None, None) => "left",
                (None, Some(_)) => "created",
                (Some(_), None) => "removed",
                (Some(base), Some(now)) if base.same(now) => "left",
                (Some(_), Some(_)) => "changed",
            };
            let merge = if owner == "left" {
                let why = "only the agent changed it, and it could not be put in place";
                Merge::No { why }
            } else {
                self.merge(&pending, now.as_ref())
            };
            found.push(Conflict {
                tree: delta.tree.clone(),
                path: path::text(&delta.path),
                owner,
                agent: match (&delta.base, &delta.new) {
                    (None, _) => "created",
                    (Some(_), None) => "removed",
                    (Some(_), Some(_)) => "changed",
                },
                merge,
                pending,
                now,
            });
        }
        found
    }

    /// Does with a conflict what the owner chose. What it replaces on the host is kept for `undo`.
    ///
    /// # Errors
    /// Why it could not be done, for people.
    pub fn resolve(&self, conflict: &Conflict, choice: Choice) -> std::result::Result<(), String> {
        let _pass = self.pass.lock();
        let tree = conflict.pending.tree;
        let mut delta = conflict.pending.delta.clone();
        if choice == Choice::Owner {
            let stale = self
                .overlay
                .lock()
                .revert(tree, &delta.path)
                .map_err(|e| e.to_string())?;
            self.tell_kernel(stale);
            return Ok(());
        }
        let host = self.hosts.get(tree).ok_or("its tree is not open")?;
        delta.base.clone_from(&conflict.now);
        if let Some(base) = delta.base.as_mut().filter(|base| base.kind == Kind::File) {
            let (file, _) = host
                .base
                .open_file(&delta.path)
                .map_err(|e| e.to_string())?;
            base.digest = Some(digest(&file).map_err(|e| e.to_string())?.0);
        }
        if choice == Choice::Merged {
            let Merge::Clean { text } = &conflict.merge else {
                return Err(
                    "both changes touch the same lines, so they cannot be put together".to_string(),
                );
            };
            self.stage_text(tree, &mut delta, text)
                .map_err(|e| format!("cannot write the merged version: {e}"))?;
        }
        if delta.base.is_none() && delta.new.is_none() {
            return Ok(());
        }
        let path = delta.path.clone();
        let mut deltas = if delta.new.is_some() {
            self.missing_dirs(tree, &delta).map_err(|e| e.to_string())?
        } else {
            Vec::new()
        };
        deltas.push((tree, delta));
        self.carry_out_own(&deltas)
            .into_iter()
            .collect::<std::result::Result<(), String>>()?;
        // The host has what was chosen; the view shows the host again.
        self.show_host(tree, &path)
    }

    /// The view shows the host's version of a path again. What is staged below a directory stays.
    pub(crate) fn show_host(
        &self,
        tree: usize,
        path: &path::Rel,
    ) -> std::result::Result<(), String> {
        let host = self.hosts.get(tree).ok_or("its tree is not open")?;
        let now = host.base.version(path).map_err(|e| e.to_string())?;
        let mut state = self.overlay.lock();
        let shown = state.walk(tree, path).map_err(|e| e.to_string())?;
        let shows_dir = match shown {
            Some(ino) => state.node(ino).is_ok_and(|node| node.kind == Kind::Dir),
            None => false,
        };
        if shows_dir && now.as_ref().is_some_and(|now| now.kind == Kind::Dir) {
            return state
                .committed(tree, path, now, None, false)
                .map_err(|e| e.to_string());
        }
        let stale = state.revert(tree, path).map_err(|e| e.to_string())?;
        drop(state);
        self.tell_kernel(stale);
        Ok(())
    }

    /// Directories that the owner removed and that a file needs to lie in, as the view has them.
    fn missing_dirs(&self, tree: usize, delta: &Delta) -> Result<Vec<(usize, Delta)>> {
        let host = self.hosts.get(tree).ok_or(Errno::NOENT)?;
        let mut missing = Vec::new();
        let mut path = delta.path.as_slice();
        while let Some((above, _)) = path::split(path) {
            if above.is_empty() || host.base.version(above)?.is_some() {
                break;
            }
            let mut state = self.overlay.lock();
            let ino = state.walk(tree, above)?.ok_or(Errno::NOENT)?;
            let attr = state.node(ino)?.attr;
            drop(state);
            missing.push((
                tree,
                Delta {
                    tree: delta.tree.clone(),
                    path: above.to_vec(),
                    base: None,
                    new: Some(New::dir(&attr)),
                },
            ));
            path = above;
        }
        missing.reverse();
        Ok(missing)
    }

    fn stage_text(&self, tree: usize, delta: &mut Delta, text: &[u8]) -> std::io::Result<()> {
        use std::io::Write as _;
        let id = self.overlay.lock().fresh_id();
        let host = self.hosts.get(tree).ok_or(Errno::NOENT)?;
        let mut file = host.upper.create_data(id)?;
        file.write_all(text)?;
        file.sync_all()?;
        if let Some(new) = delta.new.as_mut() {
            new.content = Content::Data(id);
            new.digest = kernel::Digest::of(text).0;
            new.size = text.len() as u64;
            new.mtime = crate::attr::Time::now();
            new.links.clear();
        }
        Ok(())
    }

    fn merge(&self, pending: &Pending, now: Option<&Version>) -> Merge {
        let no = |why| Merge::No { why };
        let delta = &pending.delta;
        let (Some(base), Some(now), Some(new)) = (&delta.base, now, &delta.new) else {
            return no("one side has no version of it");
        };
        if [base.kind, now.kind, new.kind] != [Kind::File; 3] {
            return no("not all versions are regular files");
        }
        let Some(host) = self.hosts.get(pending.tree) else {
            return no("its tree is not open");
        };
        let Some(ancestor) = host.upper.open_base(&delta.path, base) else {
            return no("the version that both began with was not kept");
        };
        let texts = || -> Result<[Option<String>; 3]> {
            let owner = host.base.open_file(&delta.path)?.0;
            let agent = host.source(new)?;
            Ok([text(&ancestor)?, text(&owner)?, text(&agent)?])
        };
        match texts() {
            Ok([Some(ancestor), Some(owner), Some(agent)]) => {
                match diffy::merge(&ancestor, &owner, &agent) {
                    Ok(text) => Merge::Clean {
                        text: text.into_bytes(),
                    },
                    Err(text) => Merge::Marked {
                        text: text.into_bytes(),
                    },
                }
            }
            Ok(_) => no("it is no text, or a long one"),
            Err(_) => no("a version cannot be read"),
        }
    }
}

/// A file's content, if it is text of a size that a person would merge.
fn text(file: &File) -> Result<Option<String>> {
    let bytes = beginning(file, TEXT_BYTES_MAX + 1).map_err(|e| bytes::errno(&e))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX || bytes.contains(&0) {
        return Ok(None);
    }
    Ok(String::from_utf8(bytes).ok())
}
