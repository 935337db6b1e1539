//! Names of a changed file that nobody has looked at: in the base they are the same file, so they change
//! with it.

use std::collections::{HashMap, HashSet};

use rustix::io::Result;

use crate::attr::Kind;
use crate::base::Base;
use crate::path::{Rel, join};
use crate::tree::{Ino, State};

/// Names of files that have several in one tree, by number.
pub(crate) type Several = HashMap<u64, Vec<Rel>>;

/// Looks through a whole tree: its directories, and no file.
pub(crate) fn several(base: &Base) -> Several {
    let mut numbers: Vec<u64> = Vec::new();
    base.each_file(|_, _, number| numbers.push(number));
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
    base.each_file(|dir, name, number| {
        if twice.contains(&number) {
            found.entry(number).or_default().push(join(dir, name));
        }
    });
    found
}

impl State {
    /// Whether a file, changed or moved, may have names in the base which nobody has looked at.
    pub(crate) fn is_half_known(&self, tree: usize, ino: Ino) -> bool {
        let (Some(node), Some(found)) = (self.nodes.get(&ino), self.trees.get(tree)) else {
            return false;
        };
        let Some(seen) = node.seen.as_ref().filter(|seen| seen.links > 1) else {
            return false;
        };
        let paths = self.paths_of(ino);
        let in_place = node.base.as_ref().is_some_and(|base| paths.contains(base));
        if node.kind == Kind::Dir || (node.clean() && in_place) {
            return false;
        }
        let in_base = |path: &Rel| match found.covered.get(path) {
            Some(Some(version)) => (version.dev, version.ino) == (seen.dev, seen.ino),
            Some(None) => false,
            None => node.base.as_ref() == Some(path),
        };
        let known = paths.iter().filter(|path| in_base(path)).count();
        known < usize::try_from(seen.links).unwrap_or(usize::MAX)
    }

    /// Gives such a file the names that it has in the base as well; they are to be decided with it.
    pub(crate) fn meet_other_names(&mut self, tree: usize, ino: Ino) -> Result<()> {
        let number = self.node(ino)?.seen.as_ref().map(|seen| seen.ino);
        let Some((several, number)) = self.tree(tree)?.several.clone().zip(number) else {
            return Ok(());
        };
        let known = self.paths_of(ino);
        let mut missing = false;
        for path in several.get(&number).into_iter().flatten() {
            if !self.tree(tree)?.covered.contains_key(path) {
                missing |= self.walk(tree, path)?.is_none();
            }
        }
        if missing {
            // A directory above it was moved.
            self.resolve_moved();
        }
        let met = self.paths_of(ino).into_iter();
        let met = met.filter(|path| !known.contains(path));
        self.met.extend(met.map(|path| (tree, path)));
        Ok(())
    }
}
