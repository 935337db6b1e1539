//! The agent's view in memory: nodes, names, and which paths of the base are covered by it.
//! Everything here is under one lock and never waits for the agent or the monitor.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use kernel::policy::Glob;
use rustix::io::{Errno, Result};

use crate::acl::Acl;
use crate::attr::{Attr, Kind, Version};
use crate::base::Base;
use crate::behind::Discarded;
use crate::listing::{Listing, Name, Slot};
use crate::other_names::Several;
use crate::path::{Rel, components, join};
use crate::pool::Pool;
use crate::reads::{Reads, Stamp};
use crate::upper::{Entry, Upper};
use crate::watch::Watches;

/// Node number; also the inode number that the agent sees.
pub(crate) type Ino = u64;

/// The tree that is the principal's work.
pub(crate) const WORKSPACE: &str = "workspace";
/// The directory that shows one name a tree.
pub(crate) const ROOT: Ino = 1;
/// New nodes are numbered from here; base files keep the host's number, so that programs which
/// remember it (git's index) see what they saw outside.
const FRESH: u64 = 1 << 48;

/// All trees of a session.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) trees: Vec<Tree>,
    /// Each by itself: a table of a million of them would be copied whenever it grows.
    pub(crate) nodes: HashMap<Ino, Box<Node>>,
    /// Base files with several names, by device and inode.
    pub(crate) by_base: HashMap<(usize, u64, u64), Ino>,
    pub(crate) next_id: u64,
    /// Nodes whose file is open although no handle needs it, or is known to, oldest first.
    pub(crate) kept_open: VecDeque<Ino>,
    /// Does what nobody waits for, while the trees are served.
    pub(crate) behind: Option<Arc<Pool>>,
    /// Makes the journal durable while a file is made so.
    pub(crate) syncs: Option<Arc<Pool>>,
    /// Contents that nothing needs any more and that are still there.
    pub(crate) discarded: Vec<Discarded>,
    /// Who read what is staged.
    pub(crate) reads: Reads,
    /// Places that do not wait for what they were made from.
    pub(crate) excluded: Vec<Glob>,
    /// Counts moves of names, so that whoever looked for what was moved knows whether to look again.
    pub(crate) moves: u64,
    /// Files of the base that lost their last name since then.
    pub(crate) unnamed: Vec<Ino>,
    /// Directories of the base that are watched, while the trees are served.
    pub(crate) watches: Option<Watches>,
    /// Rebuilding from a journal: nothing is written, nothing new is learnt about the base.
    pub(crate) replay: bool,
    /// Names, by tree, of what was found to have more of them than were known.
    pub(crate) met: Vec<(usize, Rel)>,
}

/// One tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) root: Ino,
    pub(crate) base: Arc<Base>,
    pub(crate) upper: Arc<Upper>,
    /// What the base had at every path that the agent's view covers; `None` for nothing.
    pub(crate) covered: HashMap<Rel, Option<Version>>,
    /// Paths to be settled, and since when they are quiet.
    pub(crate) dirty: HashMap<Rel, Dirty>,
    /// Nodes whose content or attributes changed, and since when they are quiet.
    pub(crate) dirty_nodes: HashMap<Ino, Instant>,
    /// Who changed a name last, and what they had read by then.
    pub(crate) stamps: HashMap<Rel, Stamp>,
    /// Files with several names in the base, once that was looked through.
    pub(crate) several: Option<Arc<Several>>,
}

/// A path whose name changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    pub(crate) at: Instant,
    /// Everything below it changed too (a directory moved).
    pub(crate) deep: bool,
}

/// A file, directory, link, ...
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) tree: usize,
    pub(crate) kind: Kind,
    pub(crate) attr: Attr,
    /// Where it is found: parent and name.
    pub(crate) names: Vec<(Ino, Name)>,
    /// How often the kernel was told of it.
    pub(crate) lookups: u64,
    pub(crate) opens: u32,
    pub(crate) writers: u32,
    /// What open handles read and write.
    pub(crate) file: Option<Arc<File>>,
    /// Place in the base that it shows, as far as nothing is staged.
    pub(crate) base: Option<Rel>,
    /// Version of the base file when it was first seen, or last read.
    pub(crate) seen: Option<Version>,
    /// Staged content.
    pub(crate) data: Option<u64>,
    /// Mode, owner or times were set by the agent.
    pub(crate) attr_staged: bool,
    /// The time of change was set by the agent itself.
    pub(crate) timed: bool,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(crate) dir: Option<Box<Listing>>,
    /// The access list that a directory of the base passes on, once it was looked for.
    pub(crate) passes_on: Option<Option<Acl>>,
    /// Counts changes, so that a settled delta knows whether it is still the latest.
    pub(crate) changes: u64,
    /// The version of its content that was reported as an incoming event.
    pub(crate) reported: bool,
    /// The content in the base was written there by the agent itself (a commit).
    pub(crate) by_agent: bool,
    /// Staged content is a copy of base content that was never reported.
    pub(crate) copied_unread: bool,
    /// A copy-up is under way in some thread.
    pub(crate) copying: bool,
    /// Who changed content or attributes, and what they had read by then.
    pub(crate) stamps: Vec<Stamp>,
    /// Whether somebody has read what is staged of it.
    pub(crate) read_staged: bool,
}

impl Node {
    pub(crate) fn new(tree: usize, kind: Kind, attr: Attr) -> Box<Self> {
        Box::new(Self {
            tree,
            kind,
            attr,
            names: Vec::new(),
            lookups: 0,
            opens: 0,
            writers: 0,
            file: None,
            base: None,
            seen: None,
            data: None,
            attr_staged: false,
            timed: false,
            target: None,
            xattrs: None,
            passes_on: None,
            dir: (kind == Kind::Dir).then(Box::default),
            changes: 0,
            reported: false,
            by_agent: false,
            copied_unread: false,
            copying: false,
            stamps: Vec::new(),
            read_staged: false,
        })
    }

    /// Whether it shows the base and nothing else.
    pub(crate) fn clean(&self) -> bool {
        self.base.is_some() && self.data.is_none() && !self.attr_staged && self.xattrs.is_none()
    }
}

impl State {
    pub(crate) fn new() -> Self {
        let mut nodes = HashMap::new();
        let mut root = Node::new(usize::MAX, Kind::Dir, Attr::fresh(0o755, 0, 0, 2));
        root.dir = Some(Box::new(Listing::of_new()));
        nodes.insert(ROOT, root);
        Self {
            trees: Vec::new(),
            nodes,
            by_base: HashMap::new(),
            next_id: 1,
            kept_open: VecDeque::new(),
            behind: None,
            syncs: None,
            discarded: Vec::new(),
            reads: Reads::new(),
            excluded: Vec::new(),
            moves: 0,
            unnamed: Vec::new(),
            watches: None,
            replay: false,
            met: Vec::new(),
        }
    }

    /// Adds a tree; its root directory is that of the base.
    pub(crate) fn add_tree(
        &mut self,
        name: &str,
        base: Arc<Base>,
        upper: Arc<Upper>,
    ) -> Result<usize> {
        let index = self.trees.len();
        let stat = base.stat(b"")?;
        let mut node = Node::new(index, Kind::Dir, Attr::of(&stat));
        node.base = Some(Rel::new());
        node.seen = Some(Version::of(&stat));
        node.names.push((ROOT, name.as_bytes().into()));
        let root = self.number(stat.st_ino);
        self.nodes.insert(root, node);
        if let Some(listing) = self.nodes.get_mut(&ROOT).and_then(|n| n.dir.as_mut()) {
            listing.set(name.as_bytes(), Some(Kind::Dir), Some(root));
        }
        self.trees.push(Tree {
            name: name.to_string(),
            root,
            base,
            upper,
            covered: HashMap::new(),
            dirty: HashMap::new(),
            dirty_nodes: HashMap::new(),
            stamps: HashMap::new(),
            several: None,
        });
        Ok(index)
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).map(|node| &**node).ok_or(Errno::STALE)
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        let node = self.nodes.get_mut(&ino);
        node.map(|node| &mut **node).ok_or(Errno::STALE)
    }

    pub(crate) fn tree(&self, index: usize) -> Result<&Tree> {
        // The directory above the trees belongs to none and cannot be changed.
        self.trees.get(index).ok_or(Errno::ROFS)
    }

    pub(crate) fn tree_mut(&mut self, index: usize) -> Result<&mut Tree> {
        self.trees.get_mut(index).ok_or(Errno::ROFS)
    }

    /// A number for new nodes and staged contents.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// A node number: the host's if it is free, never one that was given before.
    fn number(&mut self, host: u64) -> Ino {
        if host > ROOT && host < FRESH && !self.nodes.contains_key(&host) {
            host
        } else {
            FRESH + self.fresh_id()
        }
    }

    pub(crate) fn insert_new(&mut self, id: u64, node: Box<Node>) -> Ino {
        let ino = FRESH + id;
        self.nodes.insert(ino, node);
        ino
    }

    /// The path of a node in its tree by its first name; `None` for one without names.
    pub(crate) fn path_of(&self, ino: Ino) -> Option<Rel> {
        let mut parts: Vec<&Name> = Vec::new();
        let mut at = ino;
        loop {
            let node = self.nodes.get(&at)?;
            if self.trees.get(node.tree)?.root == at {
                break;
            }
            let (parent, name) = node.names.first()?;
            parts.push(name);
            at = *parent;
        }
        let mut path = Rel::new();
        for name in parts.iter().rev() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Some(path)
    }

    /// The path that a name in a directory has; fails when the directory itself has none.
    pub(crate) fn path_in(&self, parent: Ino, name: &[u8]) -> Result<Rel> {
        Ok(join(&self.path_of(parent).ok_or(Errno::NOENT)?, name))
    }

    /// All paths of a node.
    pub(crate) fn paths_of(&self, ino: Ino) -> Vec<Rel> {
        let Some(node) = self.nodes.get(&ino) else {
            return Vec::new();
        };
        if self
            .trees
            .get(node.tree)
            .is_some_and(|tree| tree.root == ino)
        {
            return vec![Rel::new()];
        }
        node.names
            .iter()
            .filter_map(|(parent, name)| self.path_in(*parent, name).ok())
            .collect()
    }

    /// Reads a directory's names from the base, once.
    pub(crate) fn load(&mut self, ino: Ino) -> Result<()> {
        let node = self.node(ino)?;
        let Some(listing) = &node.dir else {
            return Err(Errno::NOTDIR);
        };
        if listing.loaded {
            return Ok(());
        }
        self.watch(ino);
        let node = self.node(ino)?;
        let names = match &node.base {
            Some(path) => match self.tree(node.tree)?.base.list(path) {
                Ok(names) => names,
                // Its owner removed it; the agent sees an empty directory.
                Err(Errno::NOENT | Errno::NOTDIR) => Vec::new(),
                Err(error) => return Err(error),
            },
            None => Vec::new(),
        };
        if let Some(listing) = self.node_mut(ino)?.dir.as_mut() {
            for (name, kind) in names {
                listing.set(&name, kind, None);
            }
            listing.loaded = true;
        }
        Ok(())
    }

    /// The node under a name; `None` when there is no such name.
    pub(crate) fn child(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.load(parent)?;
        let node = self.node(parent)?;
        let slot = match node.dir.as_ref().and_then(|listing| listing.find(name)) {
            None => return Ok(None),
            Some(Slot { ino: Some(ino), .. }) => return Ok(Some(ino)),
            Some(slot) => slot,
        };
        let tree = node.tree;
        let base_path = join(node.base.as_deref().ok_or(Errno::IO)?, name);
        match self.adopt(tree, &base_path) {
            Ok(ino) => {
                self.attach(parent, name, ino)?;
                if !self.replay && !self.node(ino)?.clean() {
                    // Another name of what is staged: it changes with it.
                    let path = self.path_in(parent, name)?;
                    let version = self.tree(tree)?.base.version(&path)?;
                    self.cover_with(tree, &path, version)?;
                    self.touch(tree, path, false);
                }
                Ok(Some(ino))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                // Its owner removed it before the agent looked.
                debug_assert!(slot.ino.is_none());
                if let Some(listing) = self.node_mut(parent)?.dir.as_mut() {
                    listing.remove(name);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A node for what the base has at a path: a known one if it is another name of the same file.
    pub(crate) fn adopt(&mut self, tree: usize, base_path: &[u8]) -> Result<Ino> {
        let base = Arc::clone(&self.tree(tree)?.base);
        let stat = base.stat(base_path)?;
        let kind = Kind::of_mode(stat.st_mode);
        let key = (tree, stat.st_dev, stat.st_ino);
        let several = stat.st_nlink > 1 && kind != Kind::Dir;
        if several && let Some(ino) = self.by_base.get(&key).copied() {
            self.lean_on(ino, base_path);
            return Ok(ino);
        }
        let mut node = Node::new(tree, kind, Attr::of(&stat));
        let mut version = Version::of(&stat);
        if kind == Kind::Symlink {
            let target = base.readlink(base_path)?;
            version.target = Some(target.clone());
            node.target = Some(target);
        }
        node.base = Some(base_path.to_vec());
        node.seen = Some(version);
        let ino = self.number(stat.st_ino);
        self.nodes.insert(ino, node);
        if several {
            self.by_base.insert(key, ino);
        }
        Ok(ino)
    }

    /// Another name of a node's file was found in the base. If the name that its content is read by
    /// went away in the view, it will go away in the base, too; this one stays.
    fn lean_on(&mut self, ino: Ino, base_path: &[u8]) {
        let paths = self.paths_of(ino);
        if let Some(node) = self.nodes.get_mut(&ino)
            && node.data.is_none()
            && node.base.as_ref().is_some_and(|base| !paths.contains(base))
        {
            node.base = Some(base_path.to_vec());
        }
    }

    /// Before a name of a file goes away: its content is to be read by one that stays and is the same
    /// file in the base. Says whether it is, or need not be.
    pub(crate) fn lean_on_other(&mut self, ino: Ino, going: &Rel) -> Result<bool> {
        let node = self.node(ino)?;
        if node.kind != Kind::File || node.data.is_some() {
            return Ok(true);
        }
        let mut others = self.paths_of(ino);
        others.retain(|path| path != going);
        let node = self.node(ino)?;
        if node.base.as_ref().is_some_and(|base| others.contains(base)) {
            return Ok(true);
        }
        let base = Arc::clone(&self.tree(node.tree)?.base);
        let identity = node.seen.as_ref().map(|seen| (seen.dev, seen.ino));
        let same = |path: &Rel| {
            let there = base.version(path).ok().flatten();
            there.is_some() && there.map(|v| (v.dev, v.ino)) == identity
        };
        let Some(other) = others.into_iter().find(same) else {
            return Ok(false);
        };
        self.node_mut(ino)?.base = Some(other);
        Ok(true)
    }

    /// Puts a node under a name.
    pub(crate) fn attach(&mut self, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        self.attach_at(parent, name, ino, None)
    }

    /// The same, at a position of the listing that another name has left.
    pub(crate) fn attach_at(
        &mut self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        left: Option<u64>,
    ) -> Result<()> {
        let kind = self.node(ino)?.kind;
        if let Some(listing) = self.node_mut(parent)?.dir.as_mut() {
            listing.set_at(name, Some(kind), Some(ino), left);
        }
        let node = self.node_mut(ino)?;
        if !node.names.iter().any(|(p, n)| *p == parent && **n == *name) {
            node.names.push((parent, name.into()));
        }
        Ok(())
    }

    /// Takes a name away; the node stays as long as somebody needs it.
    pub(crate) fn detach(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let slot = self
            .node_mut(parent)?
            .dir
            .as_mut()
            .and_then(|listing| listing.remove(name));
        let Some(ino) = slot.and_then(|slot| slot.ino) else {
            return Ok(None);
        };
        self.node_mut(ino)?
            .names
            .retain(|(p, n)| *p != parent || **n != *name);
        Ok(Some(ino))
    }

    /// Frees a node that has no name, no handle and that the kernel has forgotten.
    pub(crate) fn reap(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else {
            return;
        };
        if !node.names.is_empty() || node.lookups > 0 || node.opens > 0 || ino == ROOT {
            return;
        }
        // Another name of it in the base was not looked at yet, and shows what this one became.
        let key = node
            .seen
            .as_ref()
            .map(|seen| (node.tree, seen.dev, seen.ino));
        if node.attr.nlink > 0 && key.is_some_and(|key| self.by_base.get(&key) == Some(&ino)) {
            return;
        }
        if let Some(mut node) = self.nodes.remove(&ino) {
            if let Some(id) = node.data {
                self.discard(node.tree, id, node.attr.size, node.file.take());
            }
            if let Some(seen) = &node.seen {
                let key = (node.tree, seen.dev, seen.ino);
                if self.by_base.get(&key) == Some(&ino) {
                    self.by_base.remove(&key);
                }
            }
            if let Some(tree) = self.trees.get_mut(node.tree) {
                tree.dirty_nodes.remove(&ino);
            }
        }
    }

    /// Walks a path from a tree's root.
    pub(crate) fn walk(&mut self, tree: usize, path: &[u8]) -> Result<Option<Ino>> {
        let mut at = self.tree(tree)?.root;
        for name in components(path) {
            if self.node(at)?.kind != Kind::Dir {
                return Ok(None);
            }
            match self.child(at, name)? {
                Some(ino) => at = ino,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Remembers what the base had at a path, before the view covers it for the first time.
    pub(crate) fn cover(&mut self, parent: Ino, name: &[u8], path: &Rel) -> Result<()> {
        let node = self.node(parent)?;
        let tree_index = node.tree;
        if self.tree(tree_index)?.covered.contains_key(path) {
            return Ok(());
        }
        if self.replay {
            // Records about the base come before the operations that covered it.
            self.tree_mut(tree_index)?
                .covered
                .insert(path.clone(), None);
            return Ok(());
        }
        let slot = node.dir.as_ref().and_then(|listing| listing.find(name));
        let child = slot
            .and_then(|slot| slot.ino)
            .and_then(|ino| self.nodes.get(&ino));
        let in_place = node
            .base
            .as_ref()
            .is_some_and(|base| path_is(base, name, path));
        let parent_is_new = crate::path::split(path).is_some_and(|(above, _)| {
            matches!(
                self.trees
                    .get(tree_index)
                    .and_then(|t| t.covered.get(above)),
                Some(None)
            )
        });
        let version = match child {
            Some(child) if child.base.as_ref() == Some(path) => child.seen.clone(),
            None if in_place && slot.is_none() => None,
            None if parent_is_new => None,
            _ => self.tree(tree_index)?.base.version(path)?,
        };
        self.cover_with(tree_index, path, version)
    }

    /// The same, when the version is known.
    pub(crate) fn cover_with(
        &mut self,
        tree: usize,
        path: &Rel,
        version: Option<Version>,
    ) -> Result<()> {
        let replay = self.replay;
        let tree = self.tree_mut(tree)?;
        if tree.covered.contains_key(path) {
            return Ok(());
        }
        if let (Some(version), false) = (&version, replay) {
            tree.upper.append(&Entry::Base {
                path: path.clone(),
                version: Box::new(version.clone()),
            })?;
        }
        tree.covered.insert(path.clone(), version);
        Ok(())
    }

    /// Writes a record, unless it is being read back.
    pub(crate) fn record(&self, tree: usize, entry: &Entry) -> Result<()> {
        if self.replay {
            Ok(())
        } else {
            self.tree(tree)?.upper.append(entry)
        }
    }

    /// Notes that a name changed.
    pub(crate) fn touch(&mut self, tree: usize, path: Rel, deep: bool) {
        if let Some(tree) = self.trees.get_mut(tree) {
            if let Some(stamp) = self.reads.stamp() {
                tree.stamps.insert(path.clone(), stamp);
            }
            let dirty = tree.dirty.entry(path).or_insert(Dirty {
                at: Instant::now(),
                deep,
            });
            dirty.at = Instant::now();
            dirty.deep |= deep;
        }
    }

    /// Notes that a node's content or attributes changed.
    pub(crate) fn touch_node(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.changes += 1;
            if let Some(stamp) = self.reads.stamp() {
                stamp.add_to(&mut node.stamps);
            }
            if let Some(tree) = self.trees.get_mut(node.tree) {
                tree.dirty_nodes.insert(ino, Instant::now());
            }
        }
    }

    /// The base file with this node's identity gets a node of its own from now on.
    pub(crate) fn forget_identity(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else {
            return;
        };
        if let Some(seen) = &node.seen {
            let key = (node.tree, seen.dev, seen.ino);
            if self.by_base.get(&key) == Some(&ino) {
                self.by_base.remove(&key);
            }
        }
    }

    /// A base file's identity changed under a node, by our own commit.
    pub(crate) fn rebase(&mut self, ino: Ino, base: Rel, version: Version) {
        self.forget_identity(ino);
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        if node.names.len() > 1 {
            self.by_base
                .insert((node.tree, version.dev, version.ino), ino);
        }
        let other_file = node
            .seen
            .as_ref()
            .is_none_or(|seen| (seen.dev, seen.ino) != (version.dev, version.ino));
        // Open handles go on with the file that is in place now, or they would see the old one's
        // attributes and take them for a change of its owner's.
        if other_file
            && node.data.is_none()
            && node.file.is_some()
            && let Some(tree) = self.trees.get(node.tree)
            && let Ok((file, _)) = tree.base.open_file(&base)
        {
            node.file = Some(Arc::new(file));
        }
        let is_dir = node.kind == Kind::Dir;
        node.base = Some(base);
        node.seen = Some(version);
        if is_dir {
            self.look_again(ino);
        }
    }
}

fn path_is(base: &[u8], name: &[u8], path: &[u8]) -> bool {
    crate::path::split(path).is_some_and(|(above, last)| above == base && last == name)
}
