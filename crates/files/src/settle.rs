//! Which changes have come to rest, what they amount to over the base, and in which order they are
//! decided.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};

use crate::attr::{Kind, Time, Version, Xattrs};
use crate::base::Base;
use crate::bytes::{self, digest};
use crate::delta::{Content, Delta, New};
use crate::other_names::several;
use crate::overlay::Overlay;
use crate::path::{Rel, below, components, join};
use crate::tree::{Ino, Node, State};

/// A delta that is ready to be decided.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) tree: usize,
    pub(crate) delta: Delta,
    /// The node it was made of, and its count of changes then.
    pub(crate) node: Option<(Ino, u64)>,
    /// Where in the base the node lay before it was moved here.
    pub(crate) origin: Option<Rel>,
    at: Time,
}

impl Pending {
    /// A delta that was decided before.
    pub(crate) fn again(tree: usize, delta: Delta, node: Option<(Ino, u64)>) -> Self {
        Self {
            tree,
            delta,
            node,
            origin: None,
            at: Time::default(),
        }
    }
}

/// Takes the paths that have come to rest: no handle writes them, nothing changed for a while.
/// With `force` all of them.
pub(crate) fn due(
    overlay: &Overlay,
    quiet: Duration,
    force: bool,
) -> Result<BTreeSet<(usize, Rel)>> {
    let mut paths = BTreeSet::new();
    let mut moved: Vec<(usize, Rel, Arc<Base>)> = Vec::new();
    let mut state = overlay.lock();
    let now = Instant::now();
    let rested = |at: Instant| force || now.duration_since(at) >= quiet;
    for tree in 0..state.trees.len() {
        for ino in state.rested_nodes(tree, &rested, force) {
            for path in state.paths_of(ino) {
                paths.insert((tree, path));
            }
        }
        for (path, deep) in state.rested_names(tree, &rested, force)? {
            if deep {
                let base = Arc::clone(&state.tree(tree)?.base);
                state.descend(tree, &path, &mut paths)?;
                moved.push((tree, path.clone(), base));
            }
            paths.insert((tree, path));
        }
    }
    drop(state);
    for (tree, path, base) in moved {
        descend_base(&base, tree, &path, &mut paths)?;
    }
    Ok(paths)
}

/// All paths that may differ from the base.
pub(crate) fn staged_paths(state: &mut State) -> Result<BTreeSet<(usize, Rel)>> {
    let mut paths = BTreeSet::new();
    for tree in 0..state.trees.len() {
        let found = state.tree(tree)?;
        let base = Arc::clone(&found.base);
        let covered: Vec<Rel> = found.covered.keys().cloned().collect();
        let dirty: Vec<(Rel, bool)> = found
            .dirty
            .iter()
            .map(|(path, dirty)| (path.clone(), dirty.deep))
            .collect();
        for (path, deep) in dirty {
            if deep {
                state.descend(tree, &path, &mut paths)?;
                descend_base(&base, tree, &path, &mut paths)?;
            }
            paths.insert((tree, path));
        }
        paths.extend(covered.into_iter().map(|path| (tree, path)));
        for ino in state.unclean_nodes(tree) {
            paths.extend(state.paths_of(ino).into_iter().map(|path| (tree, path)));
        }
    }
    Ok(paths)
}

/// What the view at a path amounts to over the base; `None` when it is what the base has.
pub(crate) fn delta_at(overlay: &Overlay, tree: usize, path: &Rel) -> Result<Option<Pending>> {
    let mut state = overlay.lock();
    if state.tree(tree)?.base.hides(path) {
        return Ok(None);
    }
    let mut ino = state.walk(tree, path)?;
    if ino.is_some_and(|ino| state.is_half_known(tree, ino)) {
        if state.tree(tree)?.several.is_none() {
            let base = Arc::clone(&state.tree(tree)?.base);
            drop(state);
            // Once, and not while the agent waits for the state.
            let found = several(&base);
            state = overlay.lock();
            state.tree_mut(tree)?.several = Some(Arc::new(found));
            ino = state.walk(tree, path)?;
        }
        if let Some(ino) = ino {
            state.meet_other_names(tree, ino)?;
        }
    }
    if let Some(ino) = ino {
        let node = state.node(ino)?;
        let from = node.base.clone().filter(|from| from != path);
        let bare = node.kind == Kind::File && node.data.is_none();
        if bare
            && let Some(from) = from
            && !state.place_is_quiet(tree, &from, ino)?
        {
            // Its bytes lie where something else is about to be.
            drop(state);
            overlay.copy_up(ino, false)?;
            state = overlay.lock();
        }
    }
    let covered = state.tree(tree)?.covered.get(path).cloned();
    let base = Arc::clone(&state.tree(tree)?.base);
    let upper = Arc::clone(&state.tree(tree)?.upper);
    let name = state.tree(tree)?.name.clone();
    let view = match ino {
        Some(ino) => {
            let node = state.node(ino)?;
            if node.base.as_ref() == Some(path) && node.clean() {
                state.tree_mut(tree)?.covered.remove(path);
                return Ok(None);
            }
            let content = match (node.kind, node.data, &node.base) {
                (Kind::File, Some(id), _) => Content::Data(id),
                (Kind::File, None, Some(from)) => Content::Base(from.clone()),
                _ => Content::None,
            };
            Some((
                ino,
                node.changes,
                node.kind,
                node.attr,
                content,
                node.base.clone(),
                node.attr_staged,
                node.target.clone(),
                node.xattrs.clone(),
                node.timed,
                state
                    .paths_of(ino)
                    .into_iter()
                    .filter(|other| other != path)
                    .collect::<Vec<Rel>>(),
            ))
        }
        None => None,
    };
    drop(state);

    let mut before = match covered {
        Some(version) => version,
        None => base.version(path)?,
    };
    let Some((ino, changes, kind, attr, content, from, owned, target, xattrs, timed, mut links)) =
        view
    else {
        if before.is_none() {
            overlay.lock().tree_mut(tree)?.covered.remove(path);
            return Ok(None);
        }
        // A path that went with its directory was not covered by itself.
        overlay
            .lock()
            .tree_mut(tree)?
            .covered
            .insert(path.clone(), before.clone());
        let delta = Delta {
            tree: name,
            path: path.clone(),
            base: before,
            new: None,
        };
        return Ok(Some(Pending {
            tree,
            delta,
            node: None,
            origin: None,
            at: Time::now(),
        }));
    };
    if matches!(kind, Kind::Socket | Kind::Device) {
        // It works inside and has no meaning on the host.
        return Ok(None);
    }

    let (digest, size) = match &content {
        Content::Data(id) => {
            let file = upper.open_data(*id)?;
            (digest_of(&file)?, file.metadata().map_or(0, |m| m.len()))
        }
        Content::Base(from) => {
            let (file, stat) = base.open_file(from)?;
            (digest_of(&file)?, u64::try_from(stat.st_size).unwrap_or(0))
        }
        Content::None | Content::Kept(_) => ([0; 32], 0),
    };
    links.sort();
    let xattrs = own_xattrs(&base, path, before.as_mut(), from.as_ref(), xattrs)?;
    if let Some(before) = before
        .as_mut()
        .filter(|b| b.kind == Kind::File && b.digest.is_none())
    {
        before.digest = base_digest(&base, path, before);
    }
    let (uid, gid) = match &before {
        // The agent did not change the owner; the base file's stays. What takes its place is another file, of
        // whoever made it.
        Some(before) if !owned && from.as_ref() == Some(path) => (before.uid, before.gid),
        _ => (attr.uid, attr.gid),
    };
    let new = New {
        kind,
        mode: attr.mode,
        uid,
        gid,
        mtime: attr.mtime,
        target: target.filter(|_| kind == Kind::Symlink),
        content,
        digest,
        size,
        xattrs,
        timed,
        links: if kind == Kind::Dir { Vec::new() } else { links },
    };
    let mut state = overlay.lock();
    if before
        .as_ref()
        .is_some_and(|before| nothing_changed(before, &new))
    {
        if state.node(ino)?.names.len() == 1 {
            state.committed(tree, path, before, Some((ino, changes)), false)?;
        } else {
            // Another name of it may still need what is staged; the base that later changes are compared with is
            // the one that was just looked at, not the one that the node began with.
            state.tree_mut(tree)?.covered.insert(path.clone(), before);
        }
        return Ok(None);
    }
    state
        .tree_mut(tree)?
        .covered
        .insert(path.clone(), before.clone());
    let delta = Delta {
        tree: name,
        path: path.clone(),
        base: before,
        new: Some(new),
    };
    let origin = from.filter(|from| from != path);
    Ok(Some(Pending {
        tree,
        delta,
        node: Some((ino, changes)),
        origin,
        at: attr.ctime,
    }))
}

/// Order of decision and commit: what has to make room; directories from the top; contents by the
/// time they were changed, so that what refers to others (a git ref) comes after them; at last
/// what goes away, from the bottom.
pub(crate) fn order(pending: &mut [Pending]) {
    let room = makes_room(pending);
    pending.sort_by_cached_key(|p| {
        let path = &p.delta.path;
        let depth = i64::try_from(components(path).count()).unwrap_or(0);
        match &p.delta.new {
            None => {
                let room = room.contains(&(p.tree, path.clone()));
                (
                    if room { 0 } else { 3 },
                    -depth,
                    Time::default(),
                    path.clone(),
                )
            }
            Some(new) if new.kind == Kind::Dir => (1, depth, Time::default(), path.clone()),
            Some(_) => (2, 0, p.at, path.clone()),
        }
    });
}

/// What goes away before anything else, because something else takes the place of a directory above.
pub(crate) fn makes_room(pending: &[Pending]) -> HashSet<(usize, Rel)> {
    let replaced: Vec<(usize, &Rel)> = pending
        .iter()
        .filter(|p| {
            p.delta.base.as_ref().is_some_and(|b| b.kind == Kind::Dir)
                && p.delta.new.as_ref().is_some_and(|n| n.kind != Kind::Dir)
        })
        .map(|p| (p.tree, &p.delta.path))
        .collect();
    pending
        .iter()
        .filter(|p| p.delta.new.is_none())
        .filter(|p| {
            replaced
                .iter()
                .any(|(tree, above)| *tree == p.tree && below(&p.delta.path, above))
        })
        .map(|p| (p.tree, p.delta.path.clone()))
        .collect()
}

fn nothing_changed(before: &Version, new: &New) -> bool {
    before.kind == new.kind
        && before.mode == new.mode
        && before.uid == new.uid
        && before.gid == new.gid
        && (new.xattrs.is_none() || new.xattrs == before.xattrs)
        && !(new.timed && new.mtime != before.mtime)
        && match new.kind {
            Kind::File => before.digest == Some(new.digest),
            Kind::Symlink => before.target == new.target,
            _ => true,
        }
}

/// The extended attributes that a change gives to a path; `None` when those that lie there stay. What
/// was moved brings its own, and what takes another's place does not inherit.
fn own_xattrs(
    base: &Base,
    path: &Rel,
    before: Option<&mut Version>,
    from: Option<&Rel>,
    set: Option<Xattrs>,
) -> Result<Option<Xattrs>> {
    let in_place = from == Some(path);
    if in_place && set.is_none() {
        return Ok(None);
    }
    let own = match (set, from) {
        (Some(set), _) => set,
        (None, Some(from)) => match base.xattrs(from) {
            Err(Errno::NOENT | Errno::NOTDIR) => Xattrs::new(),
            found => found?,
        },
        (None, None) => Xattrs::new(),
    };
    let Some(before) = before else {
        return Ok(Some(own).filter(|own| !own.is_empty()));
    };
    let there = base.xattrs(path).unwrap_or_default();
    let same = there == own && (in_place || own.is_empty());
    if same {
        return Ok(None);
    }
    before.xattrs = Some(there);
    Ok(Some(own))
}

/// Digest of the base file, if it still is the version that was seen.
fn base_digest(base: &Base, path: &[u8], seen: &Version) -> Option<[u8; 32]> {
    let (file, stat) = base.open_file(path).ok()?;
    if !seen.same(&Version::of(&stat)) {
        return None;
    }
    let found = digest(&file).ok()?;
    let after = rustix::fs::fstat(&file).ok()?;
    seen.same(&Version::of(&after)).then_some(found.0)
}

fn digest_of(file: &std::fs::File) -> Result<[u8; 32]> {
    digest(file).map(|d| d.0).map_err(|e| bytes::errno(&e))
}

fn descend_base(
    base: &Base,
    tree: usize,
    path: &[u8],
    paths: &mut BTreeSet<(usize, Rel)>,
) -> Result<()> {
    let mut open = vec![path.to_vec()];
    while let Some(dir) = open.pop() {
        let names = match base.list(&dir) {
            Ok(names) => names,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(error) => return Err(error),
        };
        for (name, kind) in names {
            let path = join(&dir, &name);
            if kind.is_none_or(|kind| kind == Kind::Dir) {
                open.push(path.clone());
            }
            paths.insert((tree, path));
        }
    }
    Ok(())
}

impl State {
    /// Nodes with a name whose content or attributes are staged.
    pub(crate) fn unclean_nodes(&self, tree: usize) -> Vec<Ino> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.tree == tree && !node.clean() && !node.names.is_empty())
            .map(|(ino, _)| *ino)
            .collect()
    }

    /// Files without content of their own that lie elsewhere than where their content is, and where
    /// that is.
    pub(crate) fn moved_files(&mut self) -> Vec<(usize, Ino, Rel)> {
        self.resolve_moved();
        self.nodes
            .iter()
            .filter(|(_, node)| node.kind == Kind::File && node.data.is_none())
            .filter_map(|(ino, node)| Some((node.tree, *ino, self.elsewhere(*ino, node)?)))
            .collect()
    }

    /// Makes nodes of the names in moved directories that nobody has looked at yet.
    pub(crate) fn resolve_moved(&mut self) {
        let mut dirs: Vec<Ino> = self
            .nodes
            .iter()
            .filter(|(ino, node)| node.kind == Kind::Dir && self.elsewhere(**ino, node).is_some())
            .map(|(ino, _)| *ino)
            .collect();
        let mut seen = HashSet::new();
        while let Some(dir) = dirs.pop() {
            if !seen.insert(dir) {
                continue;
            }
            if let Err(error) = self.resolve_all(dir) {
                tracing::warn!("cannot look at what was moved: {error}");
                continue;
            }
            let inside = self.nodes.get(&dir).and_then(|node| node.dir.as_ref());
            let below: Vec<Ino> = inside
                .into_iter()
                .flat_map(|listing| {
                    listing
                        .after(0)
                        .filter_map(|(_, name)| listing.find(name)?.ino)
                })
                .collect();
            dirs.extend(below.into_iter().filter(|ino| {
                self.nodes
                    .get(ino)
                    .is_some_and(|node| node.kind == Kind::Dir)
            }));
        }
    }

    /// The place of the base that a node shows under other names.
    fn elsewhere(&self, ino: Ino, node: &Node) -> Option<Rel> {
        let base = node.base.as_ref()?;
        let paths = self.paths_of(ino);
        (!paths.is_empty() && !paths.contains(base)).then(|| base.clone())
    }

    /// Whether a place of the base keeps its content until what was moved from there is committed:
    /// nothing takes its place meanwhile, nor that of a directory above.
    fn place_is_quiet(&mut self, tree: usize, path: &Rel, ino: Ino) -> Result<bool> {
        if let Some(there) = self.walk(tree, path)? {
            // It may be another name of the same file.
            return Ok(there == ino);
        }
        let mut above = path.as_slice();
        while let Some((parent, _)) = crate::path::split(above) {
            if let Some(ino) = self.walk(tree, parent)? {
                return Ok(self.node(ino)?.kind == Kind::Dir);
            }
            above = parent;
        }
        Ok(true)
    }

    /// Whether the agent has changed a directory above a path since it was last decided.
    pub(crate) fn changes_above(&self, tree: usize, path: &[u8]) -> bool {
        self.trees.get(tree).is_some_and(|tree| {
            std::iter::successors(crate::path::split(path), |(above, _)| {
                crate::path::split(above)
            })
            .any(|(above, _)| tree.dirty.contains_key(above))
        })
    }

    fn rested_nodes(
        &mut self,
        tree: usize,
        rested: &dyn Fn(Instant) -> bool,
        force: bool,
    ) -> Vec<Ino> {
        let Some(found) = self.trees.get(tree) else {
            return Vec::new();
        };
        let ready: Vec<Ino> = found
            .dirty_nodes
            .iter()
            .filter(|(ino, at)| {
                rested(**at) && (force || self.nodes.get(ino).is_none_or(|n| n.writers == 0))
            })
            .map(|(ino, _)| *ino)
            .collect();
        if let Some(found) = self.trees.get_mut(tree) {
            for ino in &ready {
                found.dirty_nodes.remove(ino);
            }
        }
        ready
    }

    fn rested_names(
        &mut self,
        tree: usize,
        rested: &dyn Fn(Instant) -> bool,
        force: bool,
    ) -> Result<Vec<(Rel, bool)>> {
        let ready: Vec<(Rel, bool)> = self
            .tree(tree)?
            .dirty
            .iter()
            .filter(|(_, dirty)| rested(dirty.at))
            .map(|(path, dirty)| (path.clone(), dirty.deep))
            .collect();
        let mut taken = Vec::new();
        for (path, deep) in ready {
            if !force
                && let Some(ino) = self.walk(tree, &path)?
                && (self.node(ino)?.writers > 0 || self.tree(tree)?.dirty_nodes.contains_key(&ino))
            {
                continue;
            }
            self.tree_mut(tree)?.dirty.remove(&path);
            taken.push((path, deep));
        }
        Ok(taken)
    }

    fn descend(
        &mut self,
        tree: usize,
        path: &[u8],
        paths: &mut BTreeSet<(usize, Rel)>,
    ) -> Result<()> {
        let mut open = vec![path.to_vec()];
        while let Some(dir) = open.pop() {
            let Some(ino) = self.walk(tree, &dir)? else {
                continue;
            };
            if self.node(ino)?.kind != Kind::Dir {
                continue;
            }
            self.load(ino)?;
            let names: Vec<(Vec<u8>, Option<Kind>)> = match &self.node(ino)?.dir {
                Some(listing) => listing
                    .after(0)
                    .map(|(_, name)| (name.to_vec(), listing.find(name).and_then(|s| s.kind)))
                    .collect(),
                None => continue,
            };
            for (name, kind) in names {
                let path = join(&dir, &name);
                if kind.is_none_or(|kind| kind == Kind::Dir) {
                    open.push(path.clone());
                }
                paths.insert((tree, path));
            }
        }
        Ok(())
    }
}
