//! After a crash: rebuilds the agent's view from the journal, and finishes or undoes what was being
//! carried out when the process ended.

use std::collections::{BTreeMap, HashMap};

use kernel::EventId;
use rustix::fs::AtFlags;
use rustix::io::{Errno, Result};

use crate::attr::{Attr, Kind, Version};
use crate::bytes::{self, digest};
use crate::commit::{Host, conflict};
use crate::delta::{Delta, New};
use crate::overlay::Overlay;
use crate::path::{self, Rel, join, split};
use crate::settle::staged_paths;
use crate::swap;
use crate::tree::{Ino, Node, State};
use crate::undo::OWN;
use crate::upper::{Entry, Staged, StagedNode, Upper, read};

/// Rebuilds a tree's view; every path that is staged is then to be settled again.
pub(crate) fn rebuild(overlay: &Overlay, tree: usize, upper: &Upper) -> Result<()> {
    let entries = read(upper.dir()).map_err(|e| bytes::errno(&e))?;
    if entries.is_empty() {
        return Ok(());
    }
    let is_checkpoint = |entry: &Entry| matches!(entry, Entry::Checkpoint { .. });
    let from = entries.iter().rposition(is_checkpoint).unwrap_or(0);
    let mut state = overlay.lock();
    // Numbers that were ever given are not given again.
    for entry in &entries {
        let id = match entry {
            Entry::Create { id, .. } | Entry::Copy { id, .. } => *id,
            Entry::Intent { event, .. } if event & OWN != 0 => event & !OWN,
            _ => continue,
        };
        state.next_id = state.next_id.max(id + 1);
    }
    state.replay = true;
    for entry in entries.iter().skip(from) {
        if let Err(error) = state.replay(tree, entry) {
            tracing::warn!("a record cannot be followed any more: {error} ({entry:?})");
        }
    }
    state.replay = false;
    state.touch_all_staged(tree);
    Ok(())
}

/// Writes everything staged to the journals of trees that were changed since the last time.
pub(crate) fn checkpoint(state: &mut State) -> Result<()> {
    if !state.trees.iter().any(|tree| tree.upper.moved_on()) {
        return Ok(());
    }
    checkpoint_now(state)
}

/// The same, whether anything was changed or not.
pub(crate) fn checkpoint_now(state: &mut State) -> Result<()> {
    let paths = staged_paths(state)?;
    for tree in 0..state.trees.len() {
        let mut staged = Vec::new();
        for (_, path) in paths.iter().filter(|(index, _)| *index == tree) {
            let view = match state.walk(tree, path)? {
                Some(ino) => Some(state.staged_node(ino)?),
                None => None,
            };
            let base = state.tree(tree)?.covered.get(path).cloned();
            staged.push(Staged {
                path: path.clone(),
                base,
                view,
            });
        }
        state.record(tree, &Entry::Checkpoint { staged })?;
    }
    Ok(())
}

/// Intents without an end: the host is brought to the new version if it can be, else it stays at
/// the old. Says what became of each.
pub(crate) fn finish_interrupted(
    host: &Host,
) -> std::io::Result<Vec<(EventId, std::result::Result<String, String>)>> {
    host.remember_lifted()?;
    let entries = read(host.upper.dir())?;
    let mut open: BTreeMap<u64, (&Delta, &Rel)> = BTreeMap::new();
    for entry in &entries {
        match entry {
            Entry::Intent { event, delta, temp } => {
                open.insert(*event, (&**delta, temp));
            }
            Entry::Finished { event, .. } => {
                open.remove(event);
            }
            _ => {}
        }
    }
    clear_strays(host, &open);
    let mut ends = Vec::new();
    // In the order in which they were intended: directories first, what goes away last.
    for (event, (delta, temp)) in &open {
        let (event, delta, temp) = (*event, *delta, *temp);
        let end = finish(host, event, delta, temp);
        let parent = split(&delta.path).map_or(&b""[..], |(parent, _)| parent);
        let end = end
            .and_then(|()| host.sync_dir(parent))
            .map_err(|e| e.to_string());
        if end.is_ok() {
            // Best effort: without it the delta is found to be none and settles by itself.
            let version = host.base.version(&delta.path).ok().flatten();
            let _ = host.upper.append(&Entry::Committed {
                path: delta.path.clone(),
                version: version.map(Box::new),
            });
        }
        let what = end
            .clone()
            .err()
            .unwrap_or_else(|| "finished after a crash".to_string());
        host.finished(event, end.is_ok(), &what);
        ends.push((EventId(event), end.map(|()| what)));
    }
    for (delta, _) in open.values() {
        host.set_dir_time(delta);
    }
    host.lower().map_err(std::io::Error::other)?;
    Ok(ends)
}

fn finish(
    host: &Host,
    event: u64,
    delta: &Delta,
    temp: &Rel,
) -> std::result::Result<(), crate::commit::CommitError> {
    let at = |path: &[u8]| host.base.version(path).ok().flatten();
    let (here, aside) = (at(&delta.path), at(temp));
    let in_place = delta
        .new
        .as_ref()
        .is_some_and(|new| matches_new(host, &delta.path, &here, new));
    if in_place {
        // It is in place. What came out lies aside, unless it was kept already; if it is not the
        // base that was expected, it is a version of the owner's and goes back.
        if let (Some(aside), Some(base)) = (&aside, &delta.base) {
            if looks_like(base, aside) {
                let kept = keep(host, event, temp, aside);
                if !kept && aside.kind == Kind::Dir {
                    within(host, &delta.path, temp, swap::exchange);
                    remove(host, temp, here.as_ref());
                    return Err(conflict(delta, "holds files that the agent did not see"));
                }
            } else {
                within(host, &delta.path, temp, swap::exchange);
                remove(host, temp, here.as_ref());
                return host.carry_out(event, delta).map(drop);
            }
        } else if let Some(aside) = &aside {
            // Made, and made again by somebody in place: ours aside is of no use.
            remove(host, temp, Some(aside));
        }
        return Ok(());
    }
    match (&aside, &delta.base, &here) {
        // Moved away to be removed, or swapped out: the old version goes back or is kept.
        (Some(aside), Some(base), None) if looks_like(base, aside) => {
            if delta.new.is_none() {
                keep(host, event, temp, aside);
                return Ok(());
            }
            within(host, temp, &delta.path, swap::take_name);
        }
        (Some(aside), None, None) | (Some(aside), _, Some(_)) => {
            // Half made, or whole but not swapped in.
            if is_ours(aside, delta) {
                remove(host, temp, Some(aside));
            }
        }
        (Some(_), Some(_), None) => {
            // Moved away, but not the version expected: the owner's; it goes back.
            within(host, temp, &delta.path, swap::take_name);
        }
        (None, Some(_), None) if delta.new.is_none() => return Ok(()),
        (None, _, _) => {}
    }
    host.carry_out(event, delta).map(drop)
}

/// What was made in a directory that its owner has moved elsewhere since: nothing of ours stays in it,
/// and what was to be replaced there keeps its name.
fn clear_strays(host: &Host, open: &BTreeMap<u64, (&Delta, &Rel)>) {
    let lost = |(_, temp): &&(&Delta, &Rel)| {
        let parent = split(temp).map_or(&b""[..], |(parent, _)| parent);
        let names = host.dir_of(parent).ok().zip(split(temp));
        let there = names.is_some_and(|(dir, (_, name))| {
            rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        });
        !there && {
            let now = host.base.version(parent);
            now.is_ok_and(|dir| dir.is_none_or(|dir| dir.kind != Kind::Dir))
        }
    };
    if !open.values().any(|one| lost(&one)) {
        return;
    }
    let mut dirs = vec![Rel::new()];
    while let Some(dir) = dirs.pop() {
        for (name, kind) in host.base.list(&dir).unwrap_or_default() {
            let path = join(&dir, &name);
            let ours = |(_, (_, temp)): &(&u64, &(&Delta, &Rel))| {
                split(temp).is_some_and(|(_, temp)| temp == name) && **temp != path
            };
            if let Some((event, (delta, _))) = open.iter().find(ours)
                && let Ok(Some(aside)) = host.base.version(&path)
            {
                clear_stray(host, *event, delta, &path, &aside);
            } else if kind.is_none_or(|kind| kind == Kind::Dir) {
                dirs.push(path);
            }
        }
    }
}

fn clear_stray(host: &Host, event: u64, delta: &Delta, temp: &Rel, aside: &Version) {
    if is_ours(aside, delta) {
        remove(host, temp, Some(aside));
        return;
    }
    let (Some((dir, _)), Some((_, name))) = (split(temp), split(&delta.path)) else {
        return;
    };
    let here = join(dir, name);
    if delta.new.is_some() && matches!(host.base.version(&here), Ok(Some(_))) {
        keep(host, event, temp, aside);
    } else {
        within(host, temp, &here, swap::take_name);
    }
}

/// Whether what is there is what the delta wanted there.
pub(crate) fn matches_new(host: &Host, path: &[u8], version: &Option<Version>, new: &New) -> bool {
    let Some(version) = version else {
        return false;
    };
    let content = match new.kind {
        Kind::File => {
            version.size == new.size
                && host
                    .base
                    .open_file(path)
                    .ok()
                    .and_then(|(file, _)| digest(&file).ok())
                    .is_some_and(|d| d.0 == new.digest)
        }
        Kind::Symlink => version.target == new.target,
        _ => true,
    };
    version.kind == new.kind && content && (new.kind == Kind::Symlink || version.mode == new.mode)
}

fn looks_like(base: &Version, now: &Version) -> bool {
    base.kind == now.kind
        && base.ino == now.ino
        && base.mode == now.mode
        && (base.kind == Kind::Dir || (base.size == now.size && base.mtime == now.mtime))
}

/// What lies under our temporary name was made by us, unless it is the owner's file swapped out.
fn is_ours(aside: &Version, delta: &Delta) -> bool {
    delta.new.as_ref().is_some_and(|new| new.kind == aside.kind)
        && delta.base.as_ref().is_none_or(|base| base.ino != aside.ino)
}

/// Moves what was replaced to where it is kept for undo; a directory needs no keeping. Says whether
/// it is out of the way.
fn keep(host: &Host, event: u64, temp: &Rel, aside: &Version) -> bool {
    if aside.kind == Kind::Dir {
        return remove(host, temp, Some(aside));
    }
    let Some((dir, name)) = open_parent(host, temp) else {
        return false;
    };
    let undo = host.undo_path(event);
    match rustix::fs::renameat(&dir, name, rustix::fs::CWD, &undo) {
        // Between two names of one file a rename does nothing and says that it worked.
        Ok(()) => remove(host, temp, Some(aside)),
        Err(Errno::XDEV) => {
            let copied = match aside.kind {
                Kind::File => host.base.open_file(temp).is_ok_and(|(source, _)| {
                    std::fs::File::create(&undo)
                        .is_ok_and(|kept| crate::base::copy_whole(&source, &kept).is_ok())
                }),
                // Where it points is in the intent.
                _ => true,
            };
            copied && remove(host, temp, Some(aside))
        }
        Err(_) => false,
    }
}

/// Says whether it is gone.
fn remove(host: &Host, path: &Rel, version: Option<&Version>) -> bool {
    let Some((dir, name)) = open_parent(host, path) else {
        return false;
    };
    let is_dir = version.is_some_and(|v| v.kind == Kind::Dir);
    let flags = if is_dir {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    matches!(
        rustix::fs::unlinkat(&dir, name, flags),
        Ok(()) | Err(Errno::NOENT)
    )
}

/// A rename within one directory; where it fails, what follows finds things as they are.
fn within(
    host: &Host,
    from: &Rel,
    to: &Rel,
    rename: fn(&std::os::fd::OwnedFd, &[u8], &[u8]) -> Result<()>,
) {
    if let (Some((dir, from)), Some((_, to))) = (open_parent(host, from), split(to)) {
        let _ = rename(&dir, from, to);
    }
}

fn open_parent<'a>(host: &Host, path: &'a Rel) -> Option<(std::os::fd::OwnedFd, &'a [u8])> {
    let (parent, name) = split(path)?;
    let dir = host.dir_of(parent).ok()?;
    // Where it cannot, what follows finds things as they are.
    let _ = host.lift(parent, &dir);
    Some((dir, name))
}

impl State {
    /// Follows one record of the journal.
    fn replay(&mut self, tree: usize, entry: &Entry) -> Result<()> {
        match entry {
            Entry::Base { path, version } => {
                self.tree_mut(tree)?
                    .covered
                    .insert(path.clone(), Some((**version).clone()));
            }
            Entry::Create { path, id, .. } => {
                let (parent, name) = self.replay_place(tree, path)?;
                if self.child(parent, name)?.is_some() {
                    self.unlink(parent, name)?;
                }
                self.cover(parent, name, path)?;
                let ino = self.create(parent, name, entry)?;
                self.next_id = self.next_id.max(id + 1);
                self.read_data(ino)?;
            }
            Entry::Link { from, to } => {
                let ino = self.walk(tree, from)?.ok_or(Errno::NOENT)?;
                let (parent, name) = self.replay_place(tree, to)?;
                self.cover(parent, name, to)?;
                self.link(ino, parent, name)?;
            }
            Entry::Remove { path } => {
                let (parent, name) = self.replay_place(tree, path)?;
                self.cover(parent, name, path)?;
                if self.child(parent, name)?.is_some() {
                    self.unlink(parent, name)?;
                }
            }
            Entry::Rename { from, to, exchange } => {
                let (from_parent, from_name) = self.replay_place(tree, from)?;
                let (to_parent, to_name) = self.replay_place(tree, to)?;
                self.cover(from_parent, from_name, from)?;
                self.cover(to_parent, to_name, to)?;
                let deep =
                    self.rename((from_parent, from_name), (to_parent, to_name), *exchange)?;
                self.touch(tree, from.clone(), deep);
                self.touch(tree, to.clone(), deep);
            }
            Entry::Copy {
                path,
                id,
                mode,
                uid,
                gid,
            } => {
                let (parent, name) = self.replay_place(tree, path)?;
                let ino = match self.child(parent, name)? {
                    Some(ino) => ino,
                    None => {
                        let attr = Attr::fresh(*mode, *uid, *gid, 1);
                        let ino = self.insert_new(*id, Node::new(tree, Kind::File, attr));
                        self.attach(parent, name, ino)?;
                        ino
                    }
                };
                self.next_id = self.next_id.max(id + 1);
                let node = self.node_mut(ino)?;
                node.data = Some(*id);
                node.attr.mode = *mode;
                self.read_data(ino)?;
            }
            Entry::Attr {
                path,
                mode,
                uid,
                gid,
                atime,
                mtime,
                timed,
            } => {
                let ino = self.walk(tree, path)?.ok_or(Errno::NOENT)?;
                let node = self.node_mut(ino)?;
                node.attr = Attr {
                    mode: *mode,
                    uid: *uid,
                    gid: *gid,
                    atime: *atime,
                    mtime: *mtime,
                    ..node.attr
                };
                node.attr_staged = true;
                node.timed = *timed;
            }
            Entry::Xattrs { path, all } => {
                let ino = self.walk(tree, path)?.ok_or(Errno::NOENT)?;
                self.node_mut(ino)?.xattrs = Some(all.clone());
            }
            Entry::Checkpoint { staged } => {
                let mut known = HashMap::new();
                for one in staged {
                    if let Err(error) = self.replay_staged(tree, one, &mut known) {
                        let path = path::text(&one.path);
                        tracing::warn!("{path} cannot be brought back: {error}");
                    }
                }
            }
            Entry::Committed { path, version } => {
                let now = self.tree(tree)?.base.version(path)?;
                let there = self.walk(tree, path)?;
                // The process may have ended before it knew that the agent went on writing.
                let seen = match there {
                    Some(ino) if self.differs(tree, path, ino)? => Some((ino, u64::MAX)),
                    _ => None,
                };
                if let (None, Some(ino)) = (&now, there)
                    && self.is_hollow(tree, ino)?
                    && let Some((parent, name)) = self.place_of(tree, path)?
                {
                    // Its owner removed it later.
                    self.unlink(parent, name)?;
                }
                // What its owner did since is theirs: it is not what the agent's changes lie over.
                let version = version.as_deref().cloned();
                self.committed(tree, path, version, seen, true)?;
                if now.is_some()
                    && let Some(ino) = self.walk(tree, path)?
                    && self.node(ino)?.clean()
                {
                    let stat = self.tree(tree)?.base.stat(path)?;
                    let links = self.node(ino)?.attr.nlink;
                    self.node_mut(ino)?.attr = Attr {
                        nlink: links,
                        ..Attr::of(&stat)
                    };
                }
            }
            Entry::Reverted { path } => {
                self.revert(tree, path)?;
            }
            Entry::Loose { path } => {
                if let Some(ino) = self.walk(tree, path)? {
                    self.loosen(ino)?;
                }
            }
            Entry::Intent { .. }
            | Entry::Finished { .. }
            | Entry::Lifted { .. }
            | Entry::Lowered { .. } => {}
        }
        Ok(())
    }

    fn staged_node(&self, ino: Ino) -> Result<StagedNode> {
        let node = self.node(ino)?;
        Ok(StagedNode {
            ino,
            kind: node.kind,
            mode: node.attr.mode,
            uid: node.attr.uid,
            gid: node.attr.gid,
            atime: node.attr.atime,
            mtime: node.attr.mtime,
            attr_staged: node.attr_staged,
            timed: node.timed,
            target: node.target.clone(),
            xattrs: node.xattrs.clone(),
            data: node.data,
            base: node.base.clone(),
        })
    }

    /// Brings one path of a checkpoint back; paths come sorted, directories before what is in them.
    fn replay_staged(
        &mut self,
        tree: usize,
        one: &Staged,
        known: &mut HashMap<u64, Ino>,
    ) -> Result<()> {
        if let Some(base) = &one.base {
            self.tree_mut(tree)?
                .covered
                .insert(one.path.clone(), base.clone());
        }
        let Some((above, name)) = split(&one.path) else {
            let (root, Some(view)) = (self.tree(tree)?.root, &one.view) else {
                return Ok(());
            };
            return self.dress(root, view);
        };
        let Some(view) = &one.view else {
            if let Some(parent) = self.walk(tree, above)?
                && self.node(parent)?.kind == Kind::Dir
                && self.child(parent, name)?.is_some()
            {
                self.unlink(parent, name)?;
            }
            self.touch(tree, one.path.clone(), false);
            return Ok(());
        };
        let parent = self.ensure_dir(tree, above)?;
        let there = self.child(parent, name)?;
        let in_place = view.base.as_ref() == Some(&one.path) && view.data.is_none();
        if let (Some(there), true) = (there, in_place)
            && self.node(there)?.kind == view.kind
        {
            known.insert(view.ino, there);
            return self.dress(there, view);
        }
        if there.is_some() {
            self.unlink(parent, name)?;
        }
        if let Some(ino) = known.get(&view.ino).copied() {
            self.touch(tree, one.path.clone(), false);
            return self.link(ino, parent, name);
        }
        let links = if view.kind == Kind::Dir { 2 } else { 1 };
        let mut node = Node::new(
            tree,
            view.kind,
            Attr::fresh(view.mode, view.uid, view.gid, links),
        );
        node.data = view.data;
        node.base.clone_from(&view.base);
        node.target.clone_from(&view.target);
        if let Some(target) = &view.target {
            node.attr.size = target.len() as u64;
        }
        if let Some(listing) = node.dir.as_mut() {
            // What is in it is told by paths of its own.
            listing.loaded = true;
        }
        if let (Kind::File, None, Some(from)) = (view.kind, view.data, &view.base) {
            // It may be gone because this very move was committed; a later record tells.
            if let Ok(stat) = self.tree(tree)?.base.stat(from) {
                node.attr.size = Attr::of(&stat).size;
                node.seen = Some(Version::of(&stat));
            }
        }
        let id = self.fresh_id();
        let ino = self.insert_new(id, node);
        known.insert(view.ino, ino);
        self.attach(parent, name, ino)?;
        self.dress(ino, view)?;
        self.read_data(ino)?;
        self.touch(tree, one.path.clone(), false);
        Ok(())
    }

    fn dress(&mut self, ino: Ino, view: &StagedNode) -> Result<()> {
        let node = self.node_mut(ino)?;
        node.attr = Attr {
            mode: view.mode,
            uid: view.uid,
            gid: view.gid,
            atime: view.atime,
            mtime: view.mtime,
            ..node.attr
        };
        node.attr_staged = view.attr_staged;
        node.timed = view.timed;
        node.xattrs.clone_from(&view.xattrs);
        Ok(())
    }

    fn replay_place<'a>(&mut self, tree: usize, path: &'a [u8]) -> Result<(Ino, &'a [u8])> {
        let (above, name) = split(path).ok_or(Errno::INVAL)?;
        Ok((self.ensure_dir(tree, above)?, name))
    }

    /// Whether a node's staged content is there and is not what the host has at a path.
    fn differs(&self, tree: usize, path: &[u8], ino: Ino) -> Result<bool> {
        let tree = self.tree(tree)?;
        let Some(staged) = self
            .node(ino)?
            .data
            .and_then(|id| tree.upper.open_data(id).ok())
        else {
            return Ok(false);
        };
        let Ok((committed, _)) = tree.base.open_file(path) else {
            return Ok(false);
        };
        let digest = |file| digest(file).map_err(|e| bytes::errno(&e));
        Ok(digest(&staged)? != digest(&committed)?)
    }

    /// Size and times of staged content, from its file.
    fn read_data(&mut self, ino: Ino) -> Result<()> {
        let node = self.node(ino)?;
        let Some(id) = node.data else { return Ok(()) };
        let stat = match self.tree(node.tree)?.upper.stat_data(id) {
            Ok(stat) => Attr::of(&stat),
            // Removed later in the journal.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let node = self.node_mut(ino)?;
        (node.attr.size, node.attr.blocks) = (stat.size, stat.blocks);
        (node.attr.mtime, node.attr.atime) = (stat.mtime, stat.atime);
        Ok(())
    }

    /// Whether nothing of a node is staged but its name: its content went to the host.
    fn is_hollow(&self, tree: usize, ino: Ino) -> Result<bool> {
        let (node, tree) = (self.node(ino)?, self.tree(tree)?);
        Ok(match (node.kind, node.data) {
            (Kind::File, Some(id)) => matches!(tree.upper.stat_data(id), Err(Errno::NOENT)),
            (Kind::Dir, _) => node.dir.as_ref().is_some_and(|listing| listing.is_empty()),
            _ => true,
        })
    }

    fn place_of<'a>(&mut self, tree: usize, path: &'a [u8]) -> Result<Option<(Ino, &'a [u8])>> {
        let Some((above, name)) = split(path) else {
            return Ok(None);
        };
        Ok(self.walk(tree, above)?.map(|parent| (parent, name)))
    }

    fn touch_all_staged(&mut self, tree: usize) {
        let Some(found) = self.trees.get(tree) else {
            return;
        };
        let covered: Vec<Rel> = found.covered.keys().cloned().collect();
        for path in covered {
            self.touch(tree, path, false);
        }
        for ino in self.unclean_nodes(tree) {
            self.touch_node(ino);
        }
    }
}
