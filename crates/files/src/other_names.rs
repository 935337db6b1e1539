//! Names of a changed file that nobody has looked at: in the base they are the same file, so they change
//! with it.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use rustix::io::Result;

use crate::attr::Kind;
use crate::base::Base;
use crate::path::{Rel, join};
use crate::tree::{Ino, State};

/// Names of files that have several in one tree, by number.
pub(crate) type Several = HashMap<u64, Vec<Rel>>;

/// Whether what changed at an instant has come to rest.
pub(crate) type Rested<'a> = dyn Fn(Instant) -> bool + 'a;

/// Looks through a whole tree. No file is looked at, only the directories.
pub(crate) fn several(base: &Base) -> Several {
    let mut numbers: Vec<u64> = Vec::new();
    each(base, |_, _, number| numbers.push(number));
    numbers.sort_unstable();
    let twice: HashSet<u64> = numbers
        .windows(2)
        .filter_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        })
        .collect();
    let mut found = Several::new();
    if twice.is_empty() {
        return found;
    }
    each(base, |dir, name, number| {
        if twice.contains(&number) {
            found.entry(number).or_default().push(join(dir, name));
        }
    });
    found
}

fn each(base: &Base, mut tell: impl FnMut(&[u8], &[u8], u64)) {
    let mut open = vec![Rel::new()];
    while let Some(dir) = open.pop() {
        // One that cannot be read, or is gone, has no names for the agent either.
        let _ = base.entries(&dir, |name, kind, number| {
            if kind == Some(Kind::Dir) {
                open.push(join(&dir, name));
            } else {
                tell(&dir, name, number);
            }
        });
    }
}

impl State {
    /// Files of a tree, changed or moved and come to rest, that may have names which nobody has looked at.
    pub(crate) fn half_known(&mut self, tree: usize, rested: &Rested<'_>) -> Result<Vec<Ino>> {
        let found = self.tree(tree)?;
        let nodes = found.dirty_nodes.iter().filter(|(_, at)| rested(**at));
        let mut inos: Vec<Ino> = nodes.map(|(ino, _)| *ino).collect();
        let names = || found.dirty.iter().filter(|(_, dirty)| rested(dirty.at));
        let paths: Vec<Rel> = names().map(|(path, _)| path.clone()).collect();
        let deep = names().any(|(_, dirty)| dirty.deep);
        for path in paths {
            inos.extend(self.walk(tree, &path)?);
        }
        if deep {
            let moved = self.moved_files();
            inos.extend(moved.iter().filter(|it| it.0 == tree).map(|it| it.1));
        }
        inos.sort_unstable();
        inos.dedup();
        inos.retain(|ino| self.is_half_known(tree, *ino).unwrap_or(false));
        Ok(inos)
    }

    fn is_half_known(&self, tree: usize, ino: Ino) -> Option<bool> {
        let node = self.nodes.get(&ino)?;
        let seen = node.seen.as_ref().filter(|seen| seen.links > 1)?;
        if node.kind == Kind::Dir {
            return None;
        }
        let found = self.trees.get(tree)?;
        let in_base = |path: &Rel| match found.covered.get(path) {
            Some(Some(version)) => (version.dev, version.ino) == (seen.dev, seen.ino),
            Some(None) => false,
            None => true,
        };
        let paths = self.paths_of(ino);
        let known = paths.iter().filter(|path| in_base(path)).count();
        Some(known < usize::try_from(seen.links).unwrap_or(usize::MAX))
    }

    /// Gives changed files the names that they have in the base as well.
    pub(crate) fn meet_other_names(&mut self, tree: usize, rested: &Rested<'_>) -> Result<()> {
        let Some(several) = self.tree(tree)?.several.clone() else {
            return Ok(());
        };
        let mut moved = false;
        for ino in self.half_known(tree, rested)? {
            let number = self.node(ino)?.seen.as_ref().map(|seen| seen.ino);
            let names = number.and_then(|number| several.get(&number));
            for path in names.into_iter().flatten() {
                if self.tree(tree)?.covered.contains_key(path) {
                    continue;
                }
                if self.walk(tree, path)?.is_none() && !moved {
                    // A directory above it was moved.
                    self.resolve_moved();
                    moved = true;
                }
            }
        }
        Ok(())
    }
}
