//! What a decision does to the agent's view: committed, it shows the host again without a flicker;
//! reverted, it shows the host's version.

use std::sync::Arc;

use rustix::io::{Errno, Result};

use crate::attr::{Attr, Kind, Version};
use crate::path::{Rel, components, join, split};
use crate::tree::{Ino, Node, State};
use crate::upper::Entry;

/// What the kernel has to be told to forget. Sent without any lock held: the kernel may be waiting
/// for an answer of ours under the very lock it needs for this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// A name in a directory.
    Name(Ino, Vec<u8>),
    /// Attributes, content or listing of a node.
    Node(Ino),
}

impl State {
    /// What the view shows at a path is now what the host has. `seen` is the node and its count of
    /// changes when the delta was made; if the agent changed it since, its changes stay staged,
    /// over the new base.
    pub(crate) fn committed(
        &mut self,
        tree: usize,
        path: &Rel,
        version: Option<Version>,
        seen: Option<(Ino, u64)>,
        by_agent: bool,
    ) -> Result<()> {
        self.record(
            tree,
            &Entry::Committed {
                path: path.clone(),
                version: version.clone().map(Box::new),
            },
        )?;
        let covered = self.tree_mut(tree)?.covered.remove(path);
        if let (Some(Some(seen)), false) = (&covered, self.replay) {
            self.tree(tree)?.upper.forget_base(path, seen);
        }
        if let (Some((then, _)), Some(version)) = (seen, &version) {
            self.arrived(then, path, version)?;
        }
        let ino = match (&version, self.walk(tree, path)?) {
            (Some(_), Some(ino)) => ino,
            (Some(_), None) => {
                // The agent removed it while it was being committed; that comes next.
                self.touch(tree, path.clone(), false);
                return self.cover_with(tree, path, version);
            }
            (None, Some(ino)) => {
                self.put_back(tree, path, ino)?;
                return Ok(());
            }
            (None, None) => {
                self.forget_stamps(tree, path, None);
                return Ok(());
            }
        };
        let Some(version) = version else {
            return Ok(());
        };
        if self.node(ino)?.kind == Kind::Dir {
            self.resolve_all(ino)?;
        }
        let node = self.node(ino)?;
        let changed = seen.is_some_and(|(then, changes)| then != ino || node.changes != changes);
        if changed || node.writers > 0 {
            if seen.is_some_and(|(then, _)| then != ino) {
                self.put_back(tree, path, ino)?;
            }
            return self.cover_with(tree, path, Some(version));
        }
        // Other names that are the same file on the host have this version too.
        let identity = (version.dev, version.ino);
        for other in self.paths_of(ino) {
            let tree = self.tree_mut(tree)?;
            if other != *path
                && tree.covered.contains_key(&other)
                && tree
                    .base
                    .version(&other)?
                    .is_some_and(|there| (there.dev, there.ino) == identity)
            {
                tree.covered.remove(&other);
            }
        }
        self.rebase(ino, path.clone(), version);
        self.forget_stamps(tree, path, Some(ino));
        let node = self.node_mut(ino)?;
        (node.attr_staged, node.timed) = (false, false);
        (node.xattrs, node.passes_on) = (None, None);
        node.by_agent |= by_agent && !node.copied_unread;
        node.copied_unread = false;
        let (staged, open) = (node.data.take(), node.opens > 0);
        if let Some(id) = staged {
            self.tree(tree)?.upper.remove_data(id);
            if open {
                let file = self.tree(tree)?.base.open_file(path)?.0;
                self.node_mut(ino)?.file = Some(Arc::new(file));
            } else {
                self.node_mut(ino)?.file = None;
            }
        }
        Ok(())
    }

    /// The host no longer has at a path what the view shows there: the agent moved it away and back again
    /// while its going was carried out. It is to be made anew, with what is in it. (A file has its
    /// content elsewhere by now: it was copied, or has arrived where it was moved to.)
    fn put_back(&mut self, tree: usize, path: &Rel, ino: Ino) -> Result<()> {
        let node = self.node(ino)?;
        if node.kind != Kind::File && node.base.as_ref() == Some(path) {
            if node.kind == Kind::Dir {
                self.resolve_all(ino)?;
            }
            self.node_mut(ino)?.base = None;
        }
        self.touch(tree, path.clone(), true);
        Ok(())
    }

    /// A file got or lost a name by our own commit, which moves its time of change under its other
    /// names: no change of its owner's.
    pub(crate) fn other_names_moved_on(&mut self, tree: usize, seen: &Version) -> Result<()> {
        if seen.links < 2 || seen.kind == Kind::Dir {
            return Ok(());
        }
        let only_ctime = |old: &Version, now: &Version| {
            (old.dev, old.ino, old.kind, old.mode) == (now.dev, now.ino, now.kind, now.mode)
                && (old.size, old.mtime) == (now.size, now.mtime)
                && (old.dev, old.ino) == (seen.dev, seen.ino)
        };
        let base = Arc::clone(&self.tree(tree)?.base);
        for (path, old) in &mut self.tree_mut(tree)?.covered {
            if let Some(old) = old
                && (old.dev, old.ino) == (seen.dev, seen.ino)
                && let Some(now) = base.version(path)?
                && only_ctime(old, &now)
            {
                old.ctime = now.ctime;
            }
        }
        let Some(ino) = self.by_base.get(&(tree, seen.dev, seen.ino)).copied() else {
            return Ok(());
        };
        for path in self.paths_of(ino) {
            if let Some(now) = base.version(&path)?
                && let Some(old) = self.node_mut(ino)?.seen.as_mut()
                && only_ctime(old, &now)
            {
                old.ctime = now.ctime;
            }
        }
        Ok(())
    }

    /// What was moved has its base at the new place from now on, whatever the agent did with it
    /// meanwhile: the old place is about to go.
    pub(crate) fn arrived(&mut self, ino: Ino, path: &Rel, version: &Version) -> Result<()> {
        let moved = self.nodes.get(&ino).is_some_and(|node| {
            node.kind == version.kind
                && node.data.is_none()
                && node.base.as_ref().is_some_and(|base| base != path)
        });
        if moved {
            if version.kind == Kind::Dir {
                self.resolve_all(ino)?;
            }
            self.rebase(ino, path.clone(), version.clone());
        }
        Ok(())
    }

    /// The view shows the host's version at a path again; open handles go on with what they have.
    pub(crate) fn revert(&mut self, tree: usize, path: &Rel) -> Result<Vec<Stale>> {
        self.record(tree, &Entry::Reverted { path: path.clone() })?;
        self.revert_here(tree, path)
    }

    fn revert_here(&mut self, tree: usize, path: &Rel) -> Result<Vec<Stale>> {
        let mut stale = Vec::new();
        let base = self.tree_mut(tree)?.covered.remove(path);
        let Some((above, name)) = split(path) else {
            return self.revert_root(tree);
        };
        let there = self.tree(tree)?.base.version(path)?;
        let parent = match self.walk(tree, above)? {
            Some(parent) if self.node(parent)?.kind == Kind::Dir => parent,
            // Nothing to bring back, and no place to take it from.
            _ if there.is_none() => return Ok(stale),
            _ => self.restore_dir(tree, &above.to_vec(), &mut stale)?,
        };
        if let Some(old) = self.child(parent, name)? {
            self.forget_identity(old);
            stale.push(Stale::Node(old));
            self.forget_stamps(tree, path, Some(old));
            self.unlink(parent, name)?;
        }
        self.forget_stamps(tree, path, None);
        if there.is_some() || base.is_some_and(|version| version.is_some()) {
            match self.adopt(tree, path) {
                Ok(ino) => self.attach(parent, name, ino)?,
                // Its owner removed it meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(error),
            }
        }
        stale.push(Stale::Name(parent, name.to_vec()));
        stale.push(Stale::Node(parent));
        Ok(stale)
    }

    fn revert_root(&mut self, tree: usize) -> Result<Vec<Stale>> {
        let (root, base) = (self.tree(tree)?.root, Arc::clone(&self.tree(tree)?.base));
        let stat = base.stat(b"")?;
        let node = self.node_mut(root)?;
        node.attr = Attr::of(&stat);
        (node.attr_staged, node.timed, node.xattrs) = (false, false, None);
        node.passes_on = None;
        Ok(vec![Stale::Node(root)])
    }

    /// Brings a directory back that the agent removed, empty: what else was in it stays removed.
    fn restore_dir(&mut self, tree: usize, path: &Rel, stale: &mut Vec<Stale>) -> Result<Ino> {
        let Some((above, name)) = split(path) else {
            return Ok(self.tree(tree)?.root);
        };
        let parent = match self.walk(tree, above)? {
            Some(parent) if self.node(parent)?.kind == Kind::Dir => parent,
            _ => self.restore_dir(tree, &above.to_vec(), stale)?,
        };
        if let Some(old) = self.child(parent, name)? {
            stale.push(Stale::Node(old));
            self.unlink(parent, name)?;
        }
        self.tree_mut(tree)?.covered.remove(path);
        let ino = self.adopt(tree, path)?;
        if let Some(listing) = self.node_mut(ino)?.dir.as_mut() {
            listing.loaded = true;
        }
        self.attach(parent, name, ino)?;
        stale.push(Stale::Name(parent, name.to_vec()));
        stale.push(Stale::Node(parent));
        Ok(ino)
    }

    /// Makes a node of every name in a directory, so that they are found wherever it moves.
    pub(crate) fn resolve_all(&mut self, ino: Ino) -> Result<()> {
        self.load(ino)?;
        let names: Vec<_> = self
            .node(ino)?
            .dir
            .iter()
            .flat_map(|listing| listing.after(0))
            .map(|(_, name)| Arc::clone(name))
            .collect();
        for name in names {
            self.child(ino, &name)?;
        }
        Ok(())
    }

    /// Makes sure that a path is a directory of the view, when rebuilding from a journal whose base
    /// has lost it. It was the owner's and its owner removed it, so it is no change of the agent's.
    pub(crate) fn ensure_dir(&mut self, tree: usize, path: &[u8]) -> Result<Ino> {
        let mut at = self.tree(tree)?.root;
        let mut so_far = Rel::new();
        for name in components(path) {
            so_far = join(&so_far, name);
            at = match self.child(at, name)? {
                Some(ino) if self.node(ino)?.kind == Kind::Dir => ino,
                _ => {
                    let mut node = Node::new(tree, Kind::Dir, Attr::fresh(0o755, 0, 0, 2));
                    if let Some(listing) = node.dir.as_mut() {
                        listing.loaded = true;
                    }
                    node.base = Some(so_far.clone());
                    let id = self.fresh_id();
                    let ino = self.insert_new(id, node);
                    self.attach(at, name, ino)?;
                    ino
                }
            };
        }
        Ok(at)
    }
}
