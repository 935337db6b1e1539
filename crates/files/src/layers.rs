//! Held changes as layers: who has read one, what was made from it, and what goes with it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kernel::policy::Policy;
use kernel::{Channel, Digest, HoldId, Incoming, Source};

use crate::attr::Kind;
use crate::decide::Candidate;
use crate::outcome::Stale;
use crate::path::{self, Rel, below};
use crate::reads::{Knowing, Stamp};
use crate::settle::Pending;
use crate::tree::{Ino, State, Tree, WORKSPACE};
use crate::trees::Trees;

/// An equal content of at least so many bytes is a copy, by whatever way it came; less can be chance.
const COPY_BYTES_MIN: u64 = 8;

impl Trees {
    /// What a change may have been made from is decided before it. Of two that were made from each other
    /// what runs later comes first.
    pub(crate) fn sources_first(&self, pending: Vec<Candidate>) -> Vec<Candidate> {
        let mut before = self.sources(&pending);
        if before.iter().all(Vec::is_empty) {
            return pending;
        }
        // What is brought forward brings forward what it needs itself.
        for (at, needed) in needed(&pending) {
            if let Some(before) = before.get_mut(at) {
                before.insert(0, needed);
            }
        }
        in_order(pending, &before)
    }

    /// For each change those of the others that it may have been made from.
    fn sources(&self, pending: &[Candidate]) -> Vec<Vec<usize>> {
        let runs = |at: usize| pending.get(at).is_some_and(|one| one.runs.later());
        let mut by_node: HashMap<Ino, Vec<usize>> = HashMap::new();
        let mut by_content: HashMap<[u8; 32], Vec<usize>> = HashMap::new();
        let state = self.overlay.lock();
        for (at, Candidate { found, .. }) in pending.iter().enumerate() {
            // Others are seldom held; what was released before them is taken back then.
            if !is_source(found) || !runs(at) {
                continue;
            }
            for ino in state.nodes_of(found) {
                by_node.entry(ino).or_default().push(at);
            }
            if let Some(content) = content(found) {
                by_content.entry(content).or_default().push(at);
            }
        }
        let mut before = vec![Vec::new(); pending.len()];
        if by_node.is_empty() && by_content.is_empty() {
            return before;
        }
        for ((at, Candidate { found, .. }), before) in pending.iter().enumerate().zip(&mut before) {
            if !state.waits_for_sources(found) {
                continue;
            }
            let own = found.node.map(|(ino, _)| ino);
            let known = state.reads.known_of(&state.knowing(found), &by_node);
            let own = own.filter(|_| has_new_content(found));
            let by_name = known.iter().chain(&own).filter_map(|ino| by_node.get(ino));
            let copies = content(found).filter(|_| !runs(at));
            let copies = copies.and_then(|content| by_content.get(&content));
            let mut sources: Vec<usize> = by_name
                .chain(copies)
                .flatten()
                .copied()
                .filter(|other| *other != at)
                .filter(|other| pending.get(*other).is_some_and(|o| !needs(&o.found, found)))
                .collect();
            sources.sort_unstable();
            sources.dedup();
            *before = sources;
        }
        drop(state);
        // From each other: what runs later first, or else the first.
        let all: Vec<HashSet<usize>> = before
            .iter()
            .map(|before| before.iter().copied().collect())
            .collect();
        for (at, before) in before.iter_mut().enumerate() {
            before.retain(|other| {
                let mutual = all.get(*other).is_some_and(|others| others.contains(&at));
                !mutual || (runs(*other), at) > (runs(at), *other)
            });
        }
        before
    }

    /// Holds whose staged content was known to whoever made a change, and then the change made; and
    /// refused ones. A copy of what would run later was made from it, by whatever way it
    /// came.
    pub(crate) fn made_from(&self, found: &Pending, runs: bool) -> Vec<HoldId> {
        if !self.overlay.lock().waits_for_sources(found) {
            return Vec::new();
        }
        let path = &found.delta.path;
        let held: Vec<(HoldId, bool, Arc<Pending>)> = self
            .holds
            .lock()
            .iter()
            .filter(|((tree, other), open)| {
                open.pending.delta.tree == WORKSPACE && (*tree, other) != (found.tree, path)
            })
            .map(|(_, open)| (open.hold, open.runs, Arc::clone(&open.pending)))
            .collect();
        let state = self.overlay.lock();
        let knowing = state.knowing(found);
        let mut holds = state.reads.refused(&knowing);
        let own = content(found).filter(|_| !runs);
        let copies = |source: &Pending| own.is_some() && content(source) == own;
        holds.extend(
            held.iter()
                .filter(|(_, runs, source)| {
                    state.may_come_from(found, &knowing, source) || (*runs && copies(source))
                })
                .map(|(hold, _, _)| *hold),
        );
        holds
    }

    /// Nodes that were read inside, will be held in a place where they run later, and have not come to rest.
    pub(crate) fn moving(&self, policy: &Policy) -> Vec<Ino> {
        let state = self.overlay.lock();
        let workspaces = state.trees.iter().filter(|tree| tree.name == WORKSPACE);
        workspaces
            .flat_map(|tree| tree.dirty_nodes.keys())
            .filter(|ino| state.nodes.get(ino).is_some_and(|node| node.read_staged))
            .filter(|ino| {
                let paths = state.paths_of(**ino);
                let mut texts = paths.iter().map(|path| path::text(path));
                texts.any(|path| policy.executes(WORKSPACE, &path).is_some())
            })
            .copied()
            .collect()
    }

    /// Whether a change may have been made from one of these.
    pub(crate) fn comes_from(&self, found: &Pending, moving: &[Ino]) -> bool {
        if moving.is_empty() {
            return false;
        }
        let state = self.overlay.lock();
        if !state.waits_for_sources(found) {
            return false;
        }
        let knowing = state.knowing(found);
        let own = found.node.map(|(own, _)| own);
        let mut others = moving.iter().filter(|ino| Some(**ino) != own);
        others.any(|ino| state.reads.knew(&knowing, *ino))
    }

    /// What is held can be read only as a layer from now on, and what was read of it before was one.
    pub(crate) fn show_layer(&self, found: &Pending) {
        let Some((node, _)) = found.node else { return };
        let read = {
            let state = self.overlay.lock();
            state.nodes.get(&node).is_some_and(|node| node.read_staged)
        };
        if read {
            self.tell_layer(&(found.tree, found.delta.path.clone()));
        }
        if self.overlay.handleless {
            // The kernel may have all of it, and its readers would not be noticed.
            self.tell_kernel(vec![Stale::Node(node)]);
        }
    }

    /// Tells the session which held changes were read inside since it was told before.
    pub(crate) fn tell_layers(&self) {
        let news = self.overlay.lock().reads.news();
        if news.is_empty() {
            return;
        }
        let read: Vec<(usize, Rel)> = self
            .holds
            .lock()
            .iter()
            .filter(|(_, open)| {
                open.pending
                    .node
                    .is_some_and(|(ino, _)| news.contains(&ino))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in read {
            self.tell_layer(&key);
        }
    }

    fn tell_layer(&self, key: &(usize, Rel)) {
        let (hold, delta) = match self.holds.lock().get_mut(key) {
            Some(open) if !open.told => {
                open.told = true;
                (open.hold, open.pending.delta.clone())
            }
            _ => return,
        };
        let Some(session) = self.session.upgrade() else {
            return;
        };
        session.incoming(Incoming {
            channel: Channel::File,
            source: Source::Location {
                tree: delta.tree,
                path: path::text(&delta.path),
            },
            content: kernel::Content {
                bytes: Vec::new().into(),
                digest: Digest(delta.new.map_or([0; 32], |new| new.digest)),
            },
            leaves: Vec::new(),
            answers: None,
            layer: Some(hold),
        });
    }

    /// What is held at a path is no more what the agent wants, or it is not any more.
    pub(crate) fn withdraw(&self, tree: usize, path: &Rel) {
        let open = self.holds.lock().remove(&(tree, path.clone()));
        let (Some(open), Some(session)) = (open, self.session.upgrade()) else {
            return;
        };
        // What builds on it is decided again, over what there is then: it must not become ready by this.
        for hold in session.dependents(open.hold).into_iter().rev() {
            let mut holds = self.holds.lock();
            let key = holds
                .iter()
                .find(|(_, other)| other.hold == hold)
                .map(|(key, _)| key.clone());
            let Some(key) = key else { continue };
            holds.remove(&key);
            drop(holds);
            session.withdraw(hold);
            self.overlay.lock().touch(key.0, key.1, false);
        }
        session.withdraw(open.hold);
    }

    /// The staged version at a path is refused: what was made from it, and is not decided, goes too.
    pub(crate) fn refuse_layer(&self, tree: usize, path: &Rel, hold: HoldId) {
        let mut state = self.overlay.lock();
        if let Ok(Some(ino)) = state.walk(tree, path) {
            state.reads.refuse(ino, hold);
        }
    }
}

impl State {
    /// Notes that whoever asks can read a node, and by that what is staged of it.
    pub(crate) fn staged_is_read(&mut self, ino: Ino, everybody: bool) {
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        let staged = match node.kind {
            Kind::File => node.data.is_some(),
            Kind::Symlink => node.base.is_none(),
            _ => false,
        };
        // What is excluded is in place at once, and keeps who made it.
        if !staged && node.stamps.is_empty() {
            return;
        }
        let tree = node.tree;
        let work = |tree: &Tree| tree.name == WORKSPACE;
        let source = staged && self.trees.get(tree).is_some_and(work);
        node.read_staged |= source;
        let source = source.then_some(ino);
        let first = if everybody {
            self.reads.read_by_everybody(source, &node.stamps)
        } else {
            self.reads.read(source, &node.stamps)
        };
        if first {
            for path in self.paths_of(ino) {
                self.reads.read_at(tree, path, ino);
            }
        }
    }

    /// Notes who made a node, beside its names.
    pub(crate) fn stamp_node(&mut self, ino: Ino) {
        if let (Some(node), Some(stamp)) = (self.nodes.get_mut(&ino), self.reads.stamp()) {
            stamp.add_to(&mut node.stamps);
        }
    }

    /// Whether a change waits for what it was made from at all.
    fn waits_for_sources(&self, found: &Pending) -> bool {
        found.delta.tree == WORKSPACE && !self.is_excluded(&found.delta.path)
    }

    /// Whether what lies at a path does not wait. An index of git's does: it names what was added to it,
    /// object by object.
    fn is_excluded(&self, path: &Rel) -> bool {
        let text = path::text(path);
        !text.ends_with(".git/index") && self.excluded.iter().any(|glob| glob.matches(&text))
    }

    /// Who counts for what was known when a change was made.
    fn knowing(&self, found: &Pending) -> Knowing {
        let node = found.node.map(|(ino, _)| ino);
        let stamps = self.stamps_at(found.tree, &found.delta.path, node);
        self.reads.knowing(&stamps)
    }

    /// The nodes whose readers know a change: its own, and those that were read in its place before.
    fn nodes_of(&self, source: &Pending) -> impl Iterator<Item = Ino> {
        let before = self.reads.ones_at(source.tree, &source.delta.path);
        let node = source.node.map(|(ino, _)| ino);
        before.filter(move |ino| Some(*ino) != node).chain(node)
    }

    /// Whether a change may have been made from another one: whoever made it knew that, or they are two
    /// names of one file.
    fn may_come_from(&self, found: &Pending, knowing: &Knowing, source: &Pending) -> bool {
        if !is_source(source) || needs(source, found) {
            return false;
        }
        let node = source.node.map(|(ino, _)| ino);
        let one_file = has_new_content(found)
            && node.is_some()
            && node == found.node.map(|(ino, _)| ino)
            && node.is_some_and(|ino| self.paths_of(ino).contains(&source.delta.path));
        let own = found.node.map(|(ino, _)| ino);
        one_file
            || self
                .nodes_of(source)
                .filter(|ino| Some(*ino) != own)
                .any(|ino| self.reads.knew(knowing, ino))
    }

    /// What is known of who made the change at a path.
    pub(crate) fn stamps_at(&self, tree: usize, path: &Rel, ino: Option<Ino>) -> Vec<Stamp> {
        let node = ino.and_then(|ino| self.nodes.get(&ino));
        let mut stamps = node.map_or_else(Vec::new, |node| node.stamps.clone());
        stamps.extend(self.trees.get(tree).and_then(|tree| tree.stamps.get(path)));
        stamps
    }

    /// The change at a path is decided: who made it matters no more, and what was read of it is in
    /// place, or gone.
    pub(crate) fn forget_stamps(&mut self, tree: usize, path: &Rel, ino: Option<Ino>) {
        self.reads.end_at(tree, path);
        if let Some(tree) = self.trees.get_mut(tree) {
            tree.stamps.remove(path);
        }
        let Some(ino) = ino else { return };
        self.reads.end(ino);
        let excluded = self.is_excluded(path);
        if let Some(node) = self.nodes.get_mut(&ino) {
            if !excluded {
                node.stamps.clear();
            }
            node.read_staged = false;
        }
    }
}

/// What is gone is known to nobody.
fn is_source(found: &Pending) -> bool {
    found.delta.tree == WORKSPACE && found.delta.new.is_some()
}

/// Whether more than attributes is changed.
fn has_new_content(found: &Pending) -> bool {
    match (&found.delta.base, &found.delta.new) {
        (Some(base), Some(new)) => base.kind != new.kind || base.digest != Some(new.digest),
        (base, new) => base.is_some() || new.is_some(),
    }
}

fn is_dir(found: &Pending) -> bool {
    let new = found.delta.new.as_ref();
    new.is_some_and(|new| new.kind == Kind::Dir)
}

/// Whether a change takes the place of a directory.
fn replaces_dir(found: &Pending) -> bool {
    let base = found.delta.base.as_ref();
    base.is_some_and(|base| base.kind == Kind::Dir) && found.delta.new.is_some() && !is_dir(found)
}

/// Whether a change cannot be made before another one: a directory above it, or what makes room for it.
fn needs(found: &Pending, other: &Pending) -> bool {
    let (path, there) = (&found.delta.path, &other.delta.path);
    found.tree == other.tree
        && match &other.delta.new {
            Some(_) => is_dir(other) && below(path, there),
            None => replaces_dir(found) && below(there, path),
        }
}

/// Pairs of changes of which the first needs the second.
fn needed(pending: &[Candidate]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let pending = || pending.iter().map(|one| &one.found).enumerate();
    let dirs: HashMap<(usize, &[u8]), usize> = pending()
        .filter(|(_, p)| is_dir(p))
        .map(|(at, p)| ((p.tree, p.delta.path.as_slice()), at))
        .collect();
    for (at, p) in pending() {
        let above = std::iter::successors(path::split(&p.delta.path), |(a, _)| path::split(a));
        found.extend(above.filter_map(|(above, _)| Some((at, *dirs.get(&(p.tree, above))?))));
        if replaces_dir(p) {
            let room = pending().filter(|(_, other)| needs(p, other) && !is_dir(other));
            found.extend(room.map(|(other, _)| (at, other)));
        }
    }
    found
}

/// The content of a file, if equal content means that it is a copy.
fn content(found: &Pending) -> Option<[u8; 32]> {
    let new = found.delta.new.as_ref()?;
    let is = found.delta.tree == WORKSPACE
        && new.kind == Kind::File
        && new.size >= COPY_BYTES_MIN
        && has_new_content(found);
    is.then_some(new.digest)
}

/// Puts each change behind those before it, and else leaves the order as it is. Where they wait for each
/// other in a circle, the first stays first.
fn in_order(pending: Vec<Candidate>, before: &[Vec<usize>]) -> Vec<Candidate> {
    enum Step {
        Enter(usize),
        Leave(usize),
    }
    let mut entered: HashSet<usize> = HashSet::new();
    let mut order = Vec::new();
    for first in 0..pending.len() {
        let mut open = vec![Step::Enter(first)];
        while let Some(step) = open.pop() {
            match step {
                Step::Leave(at) => order.push(at),
                Step::Enter(at) if entered.insert(at) => {
                    open.push(Step::Leave(at));
                    let before = before.get(at).into_iter().flatten();
                    open.extend(before.rev().map(|at| Step::Enter(*at)));
                }
                Step::Enter(_) => {}
            }
        }
    }
    let mut pending: Vec<Option<Candidate>> = pending.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|at| pending.get_mut(at).and_then(Option::take))
        .collect()
}
