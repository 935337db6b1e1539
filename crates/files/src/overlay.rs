//! Copy-on-write semantics over names: look up, create, remove, link, rename. The base is only
//! read; each change is a record in the journal before it is a change in memory.

use std::sync::Arc;

use kernel::{Effect, FileOp, Refusal};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::{Errno, Result};

use crate::acl::{self, Acl};
use crate::attr::{Attr, Kind, Time, Xattrs};
use crate::base::Base;
use crate::delta::Delta;
use crate::listing::Name;
use crate::path::Rel;
use crate::tree::{Ino, Node, ROOT, State};
use crate::upper::{Entry, Upper};

/// Longest name Linux file systems take.
const NAME_BYTES_MAX: usize = 255;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o010;

/// Says at once whether an operation on a path is refused whatever its content.
pub type Precheck = Box<dyn Fn(&Effect) -> Option<Refusal> + Send + Sync>;

/// The trees with the operations on them.
pub(crate) struct Overlay {
    state: Mutex<State>,
    pub(crate) copied: Condvar,
    precheck: Mutex<Option<Arc<Precheck>>>,
    /// Whether an fsync inside waits for the disk.
    pub(crate) durable: bool,
    /// Whether handles are not known of: a read is noticed when it comes, and so is a write.
    pub(crate) handleless: bool,
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay").finish_non_exhaustive()
    }
}

/// Takes a position, a name, its kind and its node; says whether it wants more.
type Tell<'a> = dyn FnMut(u64, &[u8], Option<Kind>, Option<Found>) -> bool + 'a;

/// Who asks, with host ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) umask: u32,
}

/// A node as the kernel is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) attr: Attr,
}

/// What to do when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    Yes,
    No,
    Exchange,
}

impl Overlay {
    pub(crate) fn new(durable: bool, handleless: bool) -> Self {
        Self {
            state: Mutex::new(State::new()),
            copied: Condvar::new(),
            precheck: Mutex::new(None),
            durable,
            handleless,
        }
    }

    pub(crate) fn add_tree(&self, name: &str, base: Arc<Base>, upper: Arc<Upper>) -> Result<usize> {
        self.lock().add_tree(name, base, upper)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn set_precheck(&self, precheck: Precheck) {
        *self.precheck.lock() = Some(Arc::new(precheck));
    }

    /// Finds a name; `None` when it is not there (which the kernel may remember).
    pub(crate) fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Option<Found>> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut state = self.lock();
        match state.child(parent, name)? {
            Some(ino) => state.told(ino).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        let mut state = self.lock();
        if let Some(node) = state.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(lookups);
            state.reap(ino);
            state.release_clean(ino);
        }
    }

    /// Makes a regular file, a FIFO or a socket, a directory or a symbolic link.
    pub(crate) fn create(
        &self,
        parent: Ino,
        name: &[u8],
        kind: Kind,
        mode: u32,
        target: &[u8],
        caller: Caller,
    ) -> Result<Found> {
        if kind == Kind::Device {
            return Err(Errno::PERM);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut state = self.lock();
        let path = state.path_in(parent, name)?;
        let tree = state.node(parent)?.tree;
        self.check(&state, tree, &path, FileOp::Create)?;
        if state.child(parent, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        let above = state.node(parent)?.attr;
        let mut mode = mode & 0o7777;
        let mut gid = caller.gid;
        if above.mode & SETGID != 0 {
            gid = above.gid;
            if kind == Kind::Dir {
                mode |= SETGID;
            }
        }
        let list = match (kind, state.passed_on(parent)?) {
            (Kind::Symlink, _) => None,
            (_, None) => {
                mode &= !caller.umask;
                None
            }
            (_, Some(passed)) => {
                let (granted, own) = passed.pass_on(mode);
                mode = granted;
                Some((own, passed))
            }
        };
        refuse_privileged(kind, mode)?;
        let (id, file) = match kind {
            Kind::File => {
                let (id, file) = state.content_file(tree)?;
                (id, Some(file))
            }
            _ => (state.fresh_id(), None),
        };
        let entry = Entry::Create {
            path: path.clone(),
            id,
            kind,
            mode,
            uid: caller.uid,
            gid,
            target: target.to_vec(),
        };
        state.cover(parent, name, &path)?;
        state.record(tree, &entry)?;
        let ino = state.create(parent, name, &entry)?;
        if let Some((own, passed)) = list {
            state.give_lists(tree, &path, ino, own, &passed)?;
        }
        let node = state.node_mut(ino)?;
        node.file = file.map(Arc::new);
        if self.handleless {
            state.keep_open(ino);
        }
        state.touch(tree, path, false);
        state.stamp_node(ino);
        state.told(ino)
    }

    pub(crate) fn remove(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        let mut state = self.lock();
        let ino = state.child(parent, name)?.ok_or(Errno::NOENT)?;
        let kind = state.node(ino)?.kind;
        if directory {
            if kind != Kind::Dir {
                return Err(Errno::NOTDIR);
            }
            state.must_be_empty(ino)?;
        } else if kind == Kind::Dir {
            return Err(Errno::ISDIR);
        }
        let path = state.path_in(parent, name)?;
        let tree = state.node(parent)?.tree;
        self.check(&state, tree, &path, FileOp::Delete)?;
        state = self.keep_for_other_names(state, ino, &path)?;
        state.cover(parent, name, &path)?;
        state.record(tree, &Entry::Remove { path: path.clone() })?;
        state.unlink(parent, name)?;
        state.touch(tree, path, false);
        Ok(())
    }

    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Found> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut state = self.lock();
        let tree = state.node(parent)?.tree;
        let node = state.node(ino)?;
        if node.tree != tree {
            return Err(Errno::XDEV);
        }
        if node.kind == Kind::Dir {
            return Err(Errno::PERM);
        }
        let from = state.path_of(ino).ok_or(Errno::NOENT)?;
        let to = state.path_in(parent, name)?;
        self.check(&state, tree, &to, FileOp::Create)?;
        if state.child(parent, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        state.cover(parent, name, &to)?;
        state.record(
            tree,
            &Entry::Link {
                from,
                to: to.clone(),
            },
        )?;
        state.link(ino, parent, name)?;
        state.touch(tree, to, false);
        state.told(ino)
    }

    pub(crate) fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        replace: Replace,
    ) -> Result<()> {
        if to.1.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut state = self.lock();
        let tree = state.node(from.0)?.tree;
        if state.node(to.0)?.tree != tree {
            return Err(Errno::XDEV);
        }
        let moving = state.child(from.0, from.1)?.ok_or(Errno::NOENT)?;
        let there = state.child(to.0, to.1)?;
        match (there, replace) {
            (Some(_), Replace::No) => return Err(Errno::EXIST),
            (None, Replace::Exchange) => return Err(Errno::NOENT),
            (Some(there), _) if there == moving => return Ok(()),
            (Some(there), Replace::Yes) => {
                match (state.node(moving)?.kind, state.node(there)?.kind) {
                    (Kind::Dir, Kind::Dir) => state.must_be_empty(there)?,
                    (Kind::Dir, _) => return Err(Errno::NOTDIR),
                    (_, Kind::Dir) => return Err(Errno::ISDIR),
                    _ => {}
                }
            }
            _ => {}
        }
        let from_path = state.path_in(from.0, from.1)?;
        let to_path = state.path_in(to.0, to.1)?;
        if crate::path::below(&to_path, &from_path) {
            return Err(Errno::INVAL);
        }
        let exchange = replace == Replace::Exchange;
        if let (Some(there), false) = (there, exchange) {
            state.keep_replaced(there, &to_path);
            state.reads.replaced(there, moving);
            state = self.keep_for_other_names(state, there, &to_path)?;
        }
        let first = if exchange {
            FileOp::Modify
        } else {
            FileOp::Delete
        };
        self.check(&state, tree, &from_path, first)?;
        let second = if there.is_some() {
            FileOp::Modify
        } else {
            FileOp::Create
        };
        self.check(&state, tree, &to_path, second)?;
        // Where its content and attributes are read from may be gone before its new place has them.
        state.keep_xattrs(moving)?;
        state.lean_on_other(moving, &from_path)?;
        if let (Some(there), true) = (there, exchange) {
            state.lean_on_other(there, &to_path)?;
        }
        state.cover(from.0, from.1, &from_path)?;
        state.cover(to.0, to.1, &to_path)?;
        state.record(
            tree,
            &Entry::Rename {
                from: from_path.clone(),
                to: to_path.clone(),
                exchange,
            },
        )?;
        let deep = state.rename(from, to, exchange)?;
        state.touch(tree, from_path, deep);
        state.touch(tree, to_path, deep);
        Ok(())
    }

    /// Tells names after a position to `tell`, until it says that it has enough. With `plus` each
    /// is told with its node, which then counts as looked up.
    pub(crate) fn list(&self, ino: Ino, after: u64, plus: bool, tell: &mut Tell<'_>) -> Result<()> {
        /// Positions 1 and 2 are `.` and `..`.
        const DOTS: u64 = 2;
        let mut state = self.lock();
        state.load(ino)?;
        let parent = state
            .node(ino)?
            .names
            .first()
            .map_or(ROOT, |(parent, _)| *parent);
        for (cookie, name, node) in [(1, &b"."[..], ino), (2, &b".."[..], parent)] {
            if after < cookie {
                let found = state.found(node)?;
                if !tell(cookie, name, Some(Kind::Dir), Some(found)) {
                    return Ok(());
                }
            }
        }
        let listing = state.node(ino)?.dir.as_ref().ok_or(Errno::NOTDIR)?;
        let names: Vec<(u64, Name)> = listing
            .after(after.saturating_sub(DOTS))
            .take(512)
            .map(|(cookie, name)| (cookie, Arc::clone(name)))
            .collect();
        for (cookie, name) in names {
            let slot = state
                .node(ino)?
                .dir
                .as_ref()
                .and_then(|listing| listing.find(&name));
            let Some(slot) = slot else { continue };
            let child = if plus || slot.kind.is_none() {
                state.child(ino, &name)?
            } else {
                slot.ino
            };
            let found = match child {
                Some(child) => Some(state.found(child)?),
                None if plus || slot.kind.is_none() => continue,
                None => None,
            };
            let kind = found.map(|f| f.kind).or(slot.kind);
            if !tell(cookie + DOTS, &name, kind, found) {
                return Ok(());
            }
            if plus && let Some(found) = found {
                state.node_mut(found.ino)?.lookups += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut state = self.lock();
        let target = state.node(ino)?.target.clone().ok_or(Errno::INVAL)?;
        state.staged_is_read(ino, self.handleless);
        Ok(target)
    }

    pub(crate) fn statfs(&self, ino: Ino) -> Result<rustix::fs::StatVfs> {
        let state = self.lock();
        let index = state.node(ino)?.tree;
        let tree = state
            .trees
            .get(index)
            .or(state.trees.first())
            .ok_or(Errno::NOENT)?;
        tree.base.statfs()
    }

    /// Before a name of a base file goes away that has others: they must not depend on it.
    fn keep_for_other_names<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ino: Ino,
        path: &Rel,
    ) -> Result<MutexGuard<'a, State>> {
        if state.lean_on_other(ino, path)? || state.node(ino)?.names.len() == 1 {
            return Ok(state);
        }
        drop(state);
        self.copy_up(ino, false)?;
        Ok(self.lock())
    }

    /// Refuses at once what is refused whatever its content.
    pub(crate) fn check(&self, state: &State, tree: usize, path: &Rel, op: FileOp) -> Result<()> {
        if state.tree(tree)?.base.hides(path) {
            return Err(Errno::ACCESS);
        }
        let Some(precheck) = self.precheck.lock().clone() else {
            return Ok(());
        };
        let tree = state.tree(tree)?.name.clone();
        let mut effect = Delta {
            tree,
            path: path.clone(),
            base: None,
            new: None,
        }
        .effect(Vec::new());
        effect.operation = kernel::Operation::File(op);
        match precheck(&effect) {
            Some(_) => Err(Errno::ACCESS),
            None => Ok(()),
        }
    }
}

/// The bits of a file's mode that give rights to whoever runs it: set-user-id, and set-group-id where
/// the group may execute it (elsewhere it means nothing).
pub(crate) fn privileged(mode: u32) -> u32 {
    let group = if mode & GROUP_EXEC == 0 { 0 } else { SETGID };
    mode & (SETUID | group)
}

/// Set-user-id files, and set-group-id ones that can be executed, are not made inside.
pub(crate) fn refuse_privileged(kind: Kind, mode: u32) -> Result<()> {
    if kind != Kind::Dir && privileged(mode) != 0 {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// Changes in memory, used alike when they happen and when they are read back from the journal.
impl State {
    pub(crate) fn found(&self, ino: Ino) -> Result<Found> {
        let node = self.node(ino)?;
        Ok(Found {
            ino,
            kind: node.kind,
            attr: node.attr,
        })
    }

    /// The same, and the kernel will know the node from now on.
    pub(crate) fn told(&mut self, ino: Ino) -> Result<Found> {
        self.node_mut(ino)?.lookups += 1;
        self.found(ino)
    }

    pub(crate) fn create(&mut self, parent: Ino, name: &[u8], entry: &Entry) -> Result<Ino> {
        let Entry::Create {
            id,
            kind,
            mode,
            uid,
            gid,
            target,
            ..
        } = entry
        else {
            return Err(Errno::INVAL);
        };
        let tree = self.node(parent)?.tree;
        let links = if *kind == Kind::Dir { 2 } else { 1 };
        let mut node = Node::new(tree, *kind, Attr::fresh(*mode, *uid, *gid, links));
        match kind {
            Kind::File => node.data = Some(*id),
            Kind::Symlink => {
                node.attr.mode = 0o777;
                node.attr.size = target.len() as u64;
                node.target = Some(target.clone());
            }
            _ => {}
        }
        if let Some(listing) = node.dir.as_mut() {
            listing.loaded = true;
        }
        let ino = self.insert_new(*id, node);
        self.attach(parent, name, ino)?;
        self.changed_dir(parent, if *kind == Kind::Dir { 1 } else { 0 });
        Ok(ino)
    }

    /// The access list that a directory passes on to what is made in it.
    fn passed_on(&mut self, parent: Ino) -> Result<Option<Acl>> {
        let node = self.node(parent)?;
        match (&node.xattrs, &node.base, &node.passes_on) {
            (Some(all), _, _) => return Ok(acl::passed_on(all)),
            (None, None, _) => return Ok(None),
            (None, Some(_), Some(known)) => return Ok(known.clone()),
            (None, Some(_), None) => {}
        }
        let base = Arc::clone(&self.tree(node.tree)?.base);
        let all = base.xattrs(node.base.as_deref().unwrap_or_default());
        let found = all.ok().as_ref().and_then(acl::passed_on);
        self.node_mut(parent)?.passes_on = Some(found.clone());
        Ok(found)
    }

    fn give_lists(
        &mut self,
        tree: usize,
        path: &Rel,
        ino: Ino,
        own: Option<Acl>,
        passed: &Acl,
    ) -> Result<()> {
        let mut all = Xattrs::new();
        if let Some(own) = own {
            all.insert(acl::ACCESS.to_vec(), own.write());
        }
        if self.node(ino)?.kind == Kind::Dir {
            all.insert(acl::DEFAULT.to_vec(), passed.write());
        }
        if all.is_empty() {
            return Ok(());
        }
        let path = path.clone();
        let noted = all.clone();
        self.record(tree, &Entry::Xattrs { path, all: noted })?;
        self.node_mut(ino)?.xattrs = Some(all);
        Ok(())
    }

    pub(crate) fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let Some(ino) = self.detach(parent, name)? else {
            return Ok(());
        };
        let node = self.node_mut(ino)?;
        let is_dir = node.kind == Kind::Dir;
        node.attr.nlink = if is_dir {
            0
        } else {
            node.attr.nlink.saturating_sub(1)
        };
        node.attr.ctime = Time::now();
        if !node.names.is_empty() {
            self.moves += 1;
        }
        self.changed_dir(parent, if is_dir { -1 } else { 0 });
        self.lost_its_names(ino);
        self.reap(ino);
        Ok(())
    }

    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        self.attach(parent, name, ino)?;
        let node = self.node_mut(ino)?;
        node.attr.nlink += 1;
        node.attr.ctime = Time::now();
        self.changed_dir(parent, 0);
        Ok(())
    }

    /// Moves a name; tells whether a directory with everything below it moved.
    pub(crate) fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        exchange: bool,
    ) -> Result<bool> {
        let moving = self.child(from.0, from.1)?.ok_or(Errno::NOENT)?;
        let there = self.child(to.0, to.1)?;
        let is_dir = |state: &Self, ino: Ino| state.node(ino).is_ok_and(|n| n.kind == Kind::Dir);
        let (moving_dir, there_dir) = (
            is_dir(self, moving),
            there.is_some_and(|ino| is_dir(self, ino)),
        );
        let position = |(parent, name): (Ino, &[u8])| {
            let listing = self.nodes.get(&parent)?.dir.as_ref()?;
            listing.find(name).map(|slot| slot.cookie)
        };
        let (from_at, to_at) = (position(from), position(to));
        self.moves += 1;
        self.detach(from.0, from.1)?;
        match there {
            Some(there) if exchange => {
                self.detach(to.0, to.1)?;
                self.attach_at(from.0, from.1, there, from_at)?;
                self.node_mut(there)?.attr.ctime = Time::now();
            }
            Some(_) => self.unlink(to.0, to.1)?,
            None => {}
        }
        let left = to_at.or(from_at.filter(|_| from.0 == to.0));
        self.attach_at(to.0, to.1, moving, left)?;
        self.node_mut(moving)?.attr.ctime = Time::now();
        let shift = i64::from(moving_dir) - i64::from(exchange && there_dir);
        self.changed_dir(from.0, -shift);
        self.changed_dir(to.0, shift);
        Ok(moving_dir || (exchange && there_dir))
    }

    /// Reads a directory's extended attributes from the base, to keep them where it moves. (A file's are
    /// read with its content.)
    pub(crate) fn keep_xattrs(&mut self, ino: Ino) -> Result<()> {
        let node = self.node(ino)?;
        let (Kind::Dir, Some(from), None) = (node.kind, &node.base, &node.xattrs) else {
            return Ok(());
        };
        let all = self.tree(node.tree)?.base.xattrs(from).unwrap_or_default();
        if !all.is_empty() {
            let tree = node.tree;
            let path = self.path_of(ino).ok_or(Errno::NOENT)?;
            let all_noted = all.clone();
            self.record(tree, &Entry::Xattrs { path, all })?;
            self.node_mut(ino)?.xattrs = Some(all_noted);
        }
        Ok(())
    }

    /// A file of the base that another is renamed over (how most editors save).
    fn keep_replaced(&self, ino: Ino, path: &Rel) {
        let (Ok(node), false) = (self.node(ino), self.replay) else {
            return;
        };
        if let (Some(base), None, Some(seen)) = (&node.base, node.data, &node.seen)
            && base == path
            && node.kind == Kind::File
            && let Ok(tree) = self.tree(node.tree)
            && let Ok((file, _)) = tree.base.open_file(base)
        {
            tree.upper.keep_base(base, seen, &file);
        }
    }

    pub(crate) fn must_be_empty(&mut self, ino: Ino) -> Result<()> {
        self.load(ino)?;
        match &self.node(ino)?.dir {
            Some(listing) if listing.is_empty() => Ok(()),
            Some(_) => Err(Errno::NOTEMPTY),
            None => Err(Errno::NOTDIR),
        }
    }

    fn changed_dir(&mut self, ino: Ino, subdirs: i64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            let now = Time::now();
            (node.attr.mtime, node.attr.ctime) = (now, now);
            // Some file systems count 1 for every directory; then it stays so.
            if node.attr.nlink > 1 {
                let links = i64::from(node.attr.nlink) + subdirs;
                node.attr.nlink = u32::try_from(links.max(2)).unwrap_or(2);
            }
        }
    }

    /// Forgets a file node that shows nothing but the base, was never opened, and that the kernel
    /// no longer knows: its name alone finds it again.
    fn release_clean(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else {
            return;
        };
        let simple = node.kind != Kind::Dir && node.clean() && !node.reported && !node.by_agent;
        if !simple || node.lookups > 0 || node.opens > 0 || node.attr.nlink != 1 {
            return;
        }
        let [(parent, name)] = node.names.as_slice() else {
            return;
        };
        let (parent, name, kind) = (*parent, Arc::clone(name), node.kind);
        let settled = self.path_of(ino).is_some_and(|path| {
            // Where a directory above was moved, its name alone would not find it for long.
            let in_place = self
                .nodes
                .get(&ino)
                .filter(|n| n.base.as_ref() == Some(&path));
            in_place
                .and_then(|n| self.trees.get(n.tree))
                .is_some_and(|tree| {
                    !tree.covered.contains_key(&path) && !tree.dirty_nodes.contains_key(&ino)
                })
        });
        if settled {
            self.forget_identity(ino);
            self.nodes.remove(&ino);
            if let Some(listing) = self.nodes.get_mut(&parent).and_then(|n| n.dir.as_mut()) {
                listing.set(&name, Some(kind), None);
            }
        }
    }
}
