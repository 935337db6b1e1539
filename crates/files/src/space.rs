//! What a session keeps on disk, and what of it can go.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use crate::commit::Host;
use crate::tree::Node;
use crate::trees::Trees;

/// What a session keeps on disk for one tree, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Changes that are staged.
    pub staged: u64,
    /// What commits replaced.
    pub undo: u64,
    /// The agent's versions where its owner changed the file too.
    pub conflicts: u64,
    /// The journal and what belongs to it.
    pub journal: u64,
}

/// Measures what a session keeps in a tree's directory.
pub fn kept(upper: &Path) -> Kept {
    let journal = std::fs::metadata(upper.join("journal")).map_or(0, |meta| meta.len());
    Kept {
        staged: bytes_below(&upper.join("data")) + bytes_below(&upper.join("bases")),
        undo: bytes_below(&upper.join("undo")),
        conflicts: bytes_below(&upper.join("conflicts")),
        journal,
    }
}

/// Removes what commits replaced; they can no longer be undone then.
///
/// # Errors
/// What could not be removed.
pub fn forget_undo(upper: &Path) -> std::io::Result<()> {
    let dir = upper.join("undo");
    for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
        std::fs::remove_file(entry.path())?;
    }
    Ok(())
}

impl Trees {
    /// Removes staged contents that nothing in the view needs any more (a killed process leaves
    /// some); returns their size in bytes.
    pub fn sweep(&self) -> u64 {
        let _pass = self.pass.lock();
        let needed: HashSet<(usize, u64)> = {
            let state = self.overlay.lock();
            let data = |node: &Node| node.data.map(|id| (node.tree, id));
            let ready = |(tree, host): (usize, &Host)| {
                let ids = host.upper.ready_ids().into_iter();
                ids.map(move |id| (tree, id))
            };
            let ready = self.hosts.iter().enumerate().flat_map(ready);
            let needed = state.nodes.values().filter_map(|node| data(node));
            needed.chain(ready).collect()
        };
        let mut freed = 0;
        for (tree, host) in self.hosts.iter().enumerate() {
            let dir = host.upper.dir().join("data");
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let id = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok());
                if let Some(id) = id.filter(|id| !needed.contains(&(tree, *id))) {
                    freed += entry.metadata().map_or(0, |meta| meta.len());
                    host.upper.remove_data(id);
                }
            }
        }
        freed
    }
}

/// Bytes on disk below a directory.
pub fn bytes_below(dir: &Path) -> u64 {
    let mut sum = 0;
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let Ok(meta) = std::fs::symlink_metadata(entry.path()) else {
                continue;
            };
            sum += meta.blocks() * 512;
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    sum
}
