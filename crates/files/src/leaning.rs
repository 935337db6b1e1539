//! What leans on a place of the host that is about to change. The agent goes on while a delta is
//! carried out: what it moved away may still have its content there, and may be moved back. Nothing
//! may be left that shows a place which is no longer what it showed.

use std::collections::{HashMap, HashSet};

use rustix::io::Result;

use crate::attr::Kind;
use crate::commit::CommitError;
use crate::delta::Delta;
use crate::path::{self, Rel};
use crate::settle::Pending;
use crate::tree::{Ino, State};
use crate::trees::Trees;
use crate::upper::Entry;

/// Nodes by the places of the base that they show, for places that are to change.
#[derive(Default)]
pub(crate) struct Leaning {
    going: HashSet<(usize, Rel)>,
    nodes: HashMap<(usize, Rel), Vec<Ino>>,
    /// How often names had moved when it was looked.
    moves: Option<u64>,
}

impl Leaning {
    /// For deltas that are about to be carried out.
    pub(crate) fn on<'a>(deltas: impl Iterator<Item = (usize, &'a Delta)>) -> Self {
        Self {
            going: deltas
                .filter(|(_, delta)| delta.base.is_some())
                .map(|(tree, delta)| (tree, delta.path.clone()))
                .collect(),
            ..Self::default()
        }
    }

    /// Looks again if names moved since.
    fn look(&mut self, state: &mut State) {
        if self.moves == Some(state.moves) {
            for ino in std::mem::take(&mut state.unnamed) {
                self.note(state, ino);
            }
            return;
        }
        state.unnamed.clear();
        state.resolve_moved();
        self.moves = Some(state.moves);
        self.nodes.clear();
        let all: Vec<Ino> = state.nodes.keys().copied().collect();
        for ino in all {
            self.note(state, ino);
        }
    }

    fn note(&mut self, state: &State, ino: Ino) {
        if let Some(node) = state.nodes.get(&ino)
            && let Some(base) = &node.base
        {
            let place = (node.tree, base.clone());
            if self.going.contains(&place) {
                self.nodes.entry(place).or_default().push(ino);
            }
        }
    }
}

impl Trees {
    /// Before the host changes at a place: whatever shows it, and is not what the change is made of,
    /// gets what it needs from there. After this nothing can come to lean on it.
    pub(crate) fn let_go(
        &self,
        leaning: &mut Leaning,
        found: &Pending,
    ) -> std::result::Result<(), CommitError> {
        if found.delta.base.is_none() {
            return Ok(());
        }
        let own = found.node.map(|(ino, _)| ino);
        let freed = self
            .free(leaning, found.tree, &found.delta.path, own)
            .and_then(|files| {
                files
                    .into_iter()
                    .try_for_each(|ino| self.overlay.copy_up(ino, false))
            });
        freed.map_err(|errno| CommitError::Failed {
            what: "keep what was moved away from",
            path: path::text(&found.delta.path),
            errno: errno.to_string(),
        })
    }

    /// Says which files have to be copied.
    fn free(
        &self,
        leaning: &mut Leaning,
        tree: usize,
        place: &Rel,
        own: Option<Ino>,
    ) -> Result<Vec<Ino>> {
        let mut state = self.overlay.lock();
        // A name that nobody looked at yet is a node from here on.
        let there = state.walk(tree, place)?;
        leaning.look(&mut state);
        let known = leaning.nodes.get(&(tree, place.clone()));
        let mut all: Vec<Ino> = known.into_iter().flatten().copied().chain(there).collect();
        all.sort_unstable();
        all.dedup();
        let mut files = Vec::new();
        for ino in all {
            let Some(node) = state.nodes.get(&ino).filter(|_| Some(ino) != own) else {
                continue;
            };
            if node.base.as_ref() != Some(place) || node.data.is_some() {
                continue;
            }
            match (node.kind, node.names.is_empty()) {
                (Kind::File, false) => files.push(ino),
                // Whoever has it open goes on with it.
                (Kind::File, true) => drop(state.opened(ino)?),
                (_, false) => state.loosen(ino)?,
                (_, true) => state.node_mut(ino)?.base = None,
            }
        }
        Ok(files)
    }
}

impl State {
    /// What a directory, a link, ... shows is the agent's alone from now on.
    pub(crate) fn loosen(&mut self, ino: Ino) -> Result<()> {
        self.keep_xattrs(ino)?;
        let node = self.node(ino)?;
        let (tree, is_dir) = (node.tree, node.kind == Kind::Dir);
        if is_dir {
            self.resolve_all(ino)?;
        }
        if let Some(path) = self.path_of(ino) {
            self.record(tree, &Entry::Loose { path })?;
        }
        let node = self.node_mut(ino)?;
        (node.base, node.seen, node.passes_on) = (None, None, None);
        Ok(())
    }

    /// A file lost its last name: what it shows may change on the host while somebody has it open.
    pub(crate) fn lost_its_names(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else {
            return;
        };
        let leans = node.kind == Kind::File && node.data.is_none() && node.file.is_none();
        if self.replay || !leans || node.base.is_none() || !node.names.is_empty() {
            return;
        }
        if node.opens > 0 {
            // Failing, it fails again when it is read.
            drop(self.opened(ino));
        } else if node.lookups > 0 {
            self.unnamed.push(ino);
        }
    }
}
