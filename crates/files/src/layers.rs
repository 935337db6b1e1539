//! Held changes as layers: who has read one, what was made from it, and what goes with it.

use kernel::{Channel, Digest, HoldId, Incoming, Source};

use crate::attr::Kind;
use crate::outcome::Stale;
use crate::path::{self, Rel, below};
use crate::reads::Stamp;
use crate::settle::Pending;
use crate::tree::{Ino, State, Tree, WORKSPACE};
use crate::trees::Trees;

impl Trees {
    /// What was read inside is decided before what may have been made from it.
    pub(crate) fn read_ones_first(&self, pending: &mut [(usize, Pending)]) {
        let stays = |p: &Pending| p.delta.new.is_some();
        let from = pending.iter().position(|(_, p)| stays(p));
        let to = pending.iter().rposition(|(_, p)| stays(p));
        let Some(stay) = from.zip(to).and_then(|(a, b)| pending.get_mut(a..=b)) else {
            return;
        };
        let state = self.overlay.lock();
        let is_read = |p: &Pending| {
            let node = p.node.and_then(|(ino, _)| state.nodes.get(&ino));
            node.is_some_and(|node| node.read_staged)
        };
        let read: Vec<Pending> = stay
            .iter()
            .map(|(_, p)| p)
            .filter(|p| is_read(p))
            .cloned()
            .collect();
        if read.is_empty() {
            return;
        }
        stay.sort_by_cached_key(|(_, p)| {
            let dir = p.delta.new.as_ref().is_some_and(|n| n.kind == Kind::Dir);
            let node = p.node.map(|(ino, _)| ino);
            let holds_read = || {
                read.iter()
                    .any(|r| r.tree == p.tree && below(&r.delta.path, &p.delta.path))
            };
            match (dir, is_read(p)) {
                (true, _) if state.stamps_at(p.tree, &p.delta.path, node).is_empty() => 0,
                (true, _) if holds_read() => 0,
                (false, true) => 1,
                (true, _) => 2,
                (false, false) => 3,
            }
        });
    }

    /// Holds whose staged content was read by whoever made a change, and then the change made.
    pub(crate) fn made_from(&self, found: &Pending) -> Vec<HoldId> {
        let path = path::text(&found.delta.path);
        // An index names what was added to it, object by object.
        let index = path.ends_with(".git/index");
        if found.delta.tree != WORKSPACE || (self.labels.excludes(&path) && !index) {
            return Vec::new();
        }
        let node = found.node.map(|(ino, _)| ino);
        let held: Vec<(HoldId, Ino)> = self
            .holds
            .lock()
            .values()
            .filter(|open| open.pending.delta.tree == WORKSPACE)
            .filter_map(|open| Some((open.hold, open.pending.node?.0)))
            .filter(|(_, ino)| Some(*ino) != node)
            .collect();
        let state = self.overlay.lock();
        let stamps = state.stamps_at(found.tree, &found.delta.path, node);
        if stamps.is_empty() {
            return Vec::new();
        }
        let mut holds = state.reads.refused(&stamps);
        holds.extend(
            held.iter()
                .filter(|(_, ino)| state.reads.saw(&stamps, *ino))
                .map(|(hold, _)| *hold),
        );
        holds
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
    /// Notes that whoever asks can read staged content of a node.
    pub(crate) fn staged_is_read(&mut self, ino: Ino, everybody: bool) {
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        let staged = match node.kind {
            Kind::File => node.data.is_some(),
            Kind::Symlink => node.base.is_none(),
            _ => false,
        };
        let work = |tree: &Tree| tree.name == WORKSPACE;
        if !staged || !self.trees.get(node.tree).is_some_and(work) {
            return;
        }
        node.read_staged = true;
        if everybody {
            self.reads.read_by_everybody(ino);
        } else {
            self.reads.read(ino);
        }
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
        if let Some(tree) = self.trees.get_mut(tree) {
            tree.stamps.remove(path);
        }
        let Some(ino) = ino else { return };
        self.reads.end(ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.stamps.clear();
            node.read_staged = false;
        }
    }
}
