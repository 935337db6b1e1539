//! From settled changes to effects: proposed, and then carried out, kept, or taken back. What is
//! held comes back here as a verdict.

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernel::policy::EXECUTES;
use kernel::{Carried, HoldId, Notice, Refusal};
use monitor::{Held, Outcome, Session};
use serde::{Deserialize, Serialize};
use store::{Lease, Parked};

use crate::attr::Kind;
use crate::commit::CommitError;
use crate::delta::{Content, Delta};
use crate::leaning::Leaning;
use crate::outcome::Stale;
use crate::path::{self, Rel, below, split};
use crate::places::Runs;
use crate::settle::{Pending, delta_at, due, makes_room, order};
use crate::tree::{Ino, WORKSPACE};
use crate::trees::Trees;

/// A hold of ours.
pub(crate) struct Open {
    pub(crate) hold: HoldId,
    pub(crate) pending: Arc<Pending>,
    /// Whether it is in a place that runs later.
    pub(crate) runs: bool,
    /// Whether the session knows that it was read inside.
    pub(crate) told: bool,
}

/// A change that is up for decision.
pub(crate) struct Candidate {
    pub(crate) found: Pending,
    pub(crate) runs: Runs,
    /// Its place in the order in which changes are carried out.
    place: usize,
}

/// A change that was released, and what it was known to be made from then.
struct Made {
    of: Candidate,
    lease: Lease,
    saw: Vec<HoldId>,
}

/// What is recorded with a hold, enough to carry it out later.
#[derive(Serialize, Deserialize)]
struct Note {
    tree: String,
    path: String,
    operation: String,
    kind: String,
    /// The delta in full, in the journal's encoding, hexadecimal.
    exact: String,
}

impl Note {
    fn of(delta: &Delta) -> Result<String, String> {
        let exact = postcard::to_stdvec(delta).map_err(|e| e.to_string())?;
        let note = Self {
            tree: delta.tree.clone(),
            path: path::text(&delta.path),
            operation: kernel::Operation::File(delta.operation())
                .name()
                .to_string(),
            kind: delta
                .new
                .as_ref()
                .map_or("none", |new| new.kind.name())
                .to_string(),
            exact: hex::encode(exact),
        };
        serde_json::to_string(&note).map_err(|e| e.to_string())
    }

    /// The delta that a hold speaks of.
    fn read(text: &str) -> Result<Delta, String> {
        let note: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let exact = hex::decode(&note.exact).map_err(|e| e.to_string())?;
        postcard::from_bytes(&exact).map_err(|e| e.to_string())
    }
}

impl Trees {
    pub(crate) fn settle_until_stopped(&self) {
        const TICK_MAX: Duration = Duration::from_secs(1);
        let tick = (self.quiet / 3).clamp(Duration::from_millis(5), TICK_MAX);
        loop {
            let mut asleep = self.sleep.0.lock();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            self.sleep.1.wait_for(&mut asleep, tick);
            drop(asleep);
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            self.follow_base();
            self.pass(false);
        }
    }

    /// Takes up the holds that an earlier process left in the log.
    pub(crate) fn remember_holds(&self) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        for held in session.held() {
            if held.effect.channel != kernel::Channel::File {
                continue;
            }
            let Ok(delta) = Note::read(&held.parked.note) else {
                continue;
            };
            let Some(tree) = self.index(&delta.tree) else {
                continue;
            };
            let now = delta_at(&self.overlay, tree, &delta.path).ok().flatten();
            let node = now
                .filter(|now| now.delta.same(&delta))
                .and_then(|now| now.node);
            let key = (tree, delta.path.clone());
            let runs = held.effect.fields.contains_key(EXECUTES)
                || session
                    .policy()
                    .executes(&delta.tree, &path::text(&delta.path))
                    .is_some();
            let pending = Arc::new(Pending::again(tree, delta, node));
            self.holds.lock().insert(
                key,
                Open {
                    hold: held.hold,
                    pending,
                    runs,
                    told: false,
                },
            );
        }
    }

    /// One round: what has come to rest is decided, and what is released is carried out.
    /// Says whether there was anything.
    pub(crate) fn pass(&self, force: bool) -> bool {
        let _pass = self.pass.lock();
        let paths = match due(&self.overlay, self.quiet, force) {
            Ok(paths) => paths,
            Err(error) => {
                tracing::warn!("cannot tell what changed: {error}");
                return false;
            }
        };
        let any = !paths.is_empty();
        let mut pending = Vec::new();
        let mut looked_at = paths.clone();
        let mut open = paths;
        while let Some((tree, path)) = open.pop_first() {
            match self.delta_surely(tree, &path) {
                Ok(Some(found)) => pending.push(found),
                Ok(None) => self.withdraw(tree, &path),
                Err(error) => {
                    tracing::warn!("cannot tell what changed at {}: {error}", path::text(&path));
                    self.overlay.lock().touch(tree, path, false);
                }
            }
            // Names that were met on the way belong to it.
            let met = std::mem::take(&mut self.overlay.lock().met);
            let news = met.into_iter().filter(|it| looked_at.insert(it.clone()));
            open.extend(news);
        }
        if !pending.is_empty() {
            order(&mut pending);
            if self.step("settled") {
                self.decide(pending, force);
            }
        }
        any
    }

    /// Where a test changes the view, or stops. Says whether it goes on.
    fn step(&self, name: &'static str) -> bool {
        self.hosts.iter().all(|host| (host.steps)(name).is_ok())
    }

    /// The agent may remove what is just being read; what it is then is looked at again.
    fn delta_surely(&self, tree: usize, path: &Rel) -> rustix::io::Result<Option<Pending>> {
        const TRIES: usize = 3;
        let mut found = delta_at(&self.overlay, tree, path);
        for _ in 1..TRIES {
            if found.is_ok() {
                break;
            }
            found = delta_at(&self.overlay, tree, path);
        }
        found
    }

    fn decide(&self, mut pending: Vec<Pending>, force: bool) {
        // Without a session nobody decides; everything stays staged.
        let Some(session) = self.session.upgrade() else {
            return;
        };
        let mut released: Vec<Made> = Vec::new();
        let mut kept_back = false;
        let mut refused: HashSet<(usize, Rel)> = HashSet::new();
        let policy = session.policy();
        self.places.lock().look(&self.overlay, &pending);
        self.keep_sources(&mut pending);
        let candidates: Vec<Candidate> = {
            let places = self.places.lock();
            let candidates = pending.into_iter().enumerate();
            let candidates = candidates.map(|(place, found)| Candidate {
                runs: places.runs(&self.overlay, &policy, &found),
                found,
                place,
            });
            candidates.collect()
        };
        let candidates = self.sources_first(candidates);
        if !self.step("decide") {
            return;
        }
        let moving = if force {
            Vec::new()
        } else {
            self.moving(&policy)
        };
        for candidate in candidates {
            let (found, runs) = (&candidate.found, candidate.runs.later());
            if !self.is_current(found, force) {
                // What it came from may go in this round.
                if let (Some((ino, _)), Some(_)) = (found.node, &found.origin) {
                    self.copy_moved(ino);
                }
                self.come_again(found);
                continue;
            }
            if self.comes_from(found, &moving) {
                self.come_again(found);
                continue;
            }
            let key = (found.tree, found.delta.path.clone());
            let known = self
                .holds
                .lock()
                .get(&key)
                .map(|open| open.pending.delta.same(&found.delta));
            match known {
                Some(true) => continue,
                Some(false) => self.withdraw(found.tree, &found.delta.path),
                None => {}
            }
            if found.delta.new.is_none() && refused.contains(&key) {
                // What was to move away from here was refused: it stays here.
                self.revert(found.tree, &found.delta.path);
                continue;
            }
            let mut saw = self.builds_on(found);
            saw.extend(self.made_from(found, runs));
            let mut effect = found.delta.effect(saw.clone());
            match self.carried(&session, found) {
                Ok(carried) => effect.carries = carried,
                Err(error) => {
                    tracing::warn!("{}: {error}", path::text(&found.delta.path));
                    self.come_again(found);
                    continue;
                }
            }
            if let Runs::As(place) = &candidate.runs {
                effect.fields.insert(EXECUTES.to_string(), place.clone());
            }
            let note = match Note::of(&found.delta) {
                Ok(note) => note,
                Err(error) => {
                    tracing::warn!("{}: {error}", path::text(&found.delta.path));
                    continue;
                }
            };
            let parked = Parked { note, blob: None };
            let mut on_hold = |held: &Held| {
                let open = Open {
                    hold: held.hold,
                    pending: Arc::new(found.clone()),
                    runs,
                    told: false,
                };
                self.holds.lock().insert(key.clone(), open);
            };
            let outcome = if self.in_doubt.load(Ordering::Acquire) {
                session.propose_in_doubt(effect, parked, &mut on_hold)
            } else {
                session.propose(effect, parked, &mut on_hold)
            };
            match outcome {
                Outcome::Released(lease) => released.push(Made {
                    of: candidate,
                    lease,
                    saw,
                }),
                Outcome::Held(_) => {
                    kept_back = true;
                    self.keep_content(found);
                    self.show_layer(found);
                }
                Outcome::Refused { event, .. } => {
                    kept_back = true;
                    self.refuse_layer(found.tree, &found.delta.path, HoldId(event.0));
                    if let Some(origin) = &found.origin {
                        refused.insert((found.tree, origin.clone()));
                    }
                    self.revert(found.tree, &found.delta.path);
                }
            }
        }
        if kept_back {
            released.retain(|made| !self.takes_back(&session, made));
        }
        // What refers to others comes after them on the host.
        released.sort_by_key(|made| made.of.place);
        let released = released.into_iter().map(|made| (made.of.found, made.lease));
        self.carry_out(released.collect());
    }

    /// Changes that were made from each other cannot all come after what they were made from. One that was
    /// released before another was kept back is not carried out, and decided again.
    fn takes_back(&self, session: &Session, made: &Made) -> bool {
        let found = &made.of.found;
        let from = self.made_from(found, made.of.runs.later());
        let Some(hold) = from.iter().find(|hold| !made.saw.contains(hold)) else {
            return false;
        };
        let why = format!("not carried out, and decided again: it was made from what is {hold}");
        session.done(made.lease.event(), Err(why));
        self.come_again(found);
        true
    }

    /// A change is to be decided another time.
    fn come_again(&self, found: &Pending) {
        let path = found.delta.path.clone();
        self.overlay.lock().touch(found.tree, path, false);
    }

    /// What a change carries in its name, its target and its content: it sticks to the place.
    fn carried(&self, session: &Session, found: &Pending) -> std::io::Result<Carried> {
        const PIECE_BYTES: usize = 256 << 10;
        let scanner = session.scanner();
        let mut carried = Carried::nothing();
        let (Some(new), false) = (&found.delta.new, scanner.is_empty()) else {
            return Ok(carried);
        };
        carried.merge(&scanner.scan(&found.delta.path));
        if let Some(target) = &new.target {
            carried.merge(&scanner.scan(target));
        }
        if let (Kind::File, Some(host)) = (new.kind, self.hosts.get(found.tree)) {
            let mut content = host.source(new)?;
            let mut scan = scanner.start();
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                let read = content.read(&mut piece)?;
                if read == 0 {
                    break;
                }
                scan.feed(piece.get(..read).unwrap_or_default());
            }
            carried.merge(&scan.finish());
        }
        if found.delta.tree == WORKSPACE {
            return Ok(carried);
        }
        // The agent's own notes of what it was told build on nothing.
        Ok(Carried::recorded(carried.tokens(), []))
    }

    /// Holds that a delta builds on: its directory, what has to leave its directory first, what
    /// was moved away from its place.
    fn builds_on(&self, found: &Pending) -> Vec<HoldId> {
        let path = &found.delta.path;
        self.holds
            .lock()
            .iter()
            .filter(|((tree, other), open)| {
                let removal = found.delta.new.is_none();
                let contents_of = |p: &Delta| p.base.as_ref().is_some_and(|b| b.kind == Kind::Dir);
                *tree == found.tree
                    && other != path
                    && ((below(path, other) && open.pending.delta.new.is_some())
                        || (below(other, path)
                            && contents_of(&found.delta)
                            && found.delta.new.as_ref().is_none_or(|n| n.kind != Kind::Dir))
                        || (removal && open.pending.origin.as_ref() == Some(path)))
            })
            .map(|(_, open)| open.hold)
            .collect()
    }

    /// What was moved in the view has its bytes where it came from. If that place is to change in this
    /// round before the move is made, or the move itself is not decided in it, the bytes are copied
    /// first.
    fn keep_sources(&self, pending: &mut [Pending]) {
        let going: HashSet<(usize, &Rel)> = pending
            .iter()
            .filter(|p| p.delta.base.is_some())
            .map(|p| (p.tree, &p.delta.path))
            .collect();
        if going.is_empty() {
            return;
        }
        let first = makes_room(pending);
        let decided: HashSet<Ino> = pending
            .iter()
            .filter(|p| p.origin.is_some())
            .filter_map(|p| p.node.map(|(ino, _)| ino))
            .collect();
        let moved = self.overlay.lock().moved_files();
        let mut copied = HashSet::new();
        for (tree, ino, from) in moved {
            let from = (tree, from);
            let going = going.contains(&(tree, &from.1));
            if going && (first.contains(&from) || !decided.contains(&ino)) {
                self.copy_moved(ino);
                copied.insert(ino);
            }
        }
        for found in pending {
            if found.node.is_some_and(|(ino, _)| copied.contains(&ino)) {
                self.locate_content(found.tree, &mut found.delta);
            }
        }
    }

    fn copy_moved(&self, ino: Ino) {
        if let Err(error) = self.overlay.copy_up(ino, false) {
            tracing::warn!("cannot keep what was moved: {error}");
        }
    }

    /// A hold can last: bytes that lie in the base where they were moved from are copied, so that
    /// whatever happens there does not reach them.
    fn keep_content(&self, found: &Pending) {
        let moved = found.delta.new.as_ref().is_some_and(
            |new| matches!(&new.content, Content::Base(from) if *from != found.delta.path),
        );
        if let (true, Some((ino, _))) = (moved, found.node)
            && let Err(error) = self.overlay.copy_up(ino, false)
        {
            tracing::warn!("{}: {error}", path::text(&found.delta.path));
        }
    }

    /// Where the bytes of a held delta lie now. Their digest is checked when they are read.
    fn locate_content(&self, tree: usize, delta: &mut Delta) {
        let mut state = self.overlay.lock();
        let Ok(Some(ino)) = state.walk(tree, &delta.path) else {
            return;
        };
        let (Ok(node), Some(new)) = (state.node(ino), delta.new.as_mut()) else {
            return;
        };
        if new.kind == Kind::File {
            match (node.data, &node.base) {
                (Some(id), _) => new.content = Content::Data(id),
                (None, Some(from)) => new.content = Content::Base(from.clone()),
                (None, None) => {}
            }
        }
    }

    /// Whether the view still is as it was when the delta was made, and nobody is writing it.
    fn is_current(&self, found: &Pending, force: bool) -> bool {
        let mut state = self.overlay.lock();
        // A directory is not removed before what was removed from it.
        let removes_dir = found.delta.new.is_none()
            && found
                .delta
                .base
                .as_ref()
                .is_some_and(|base| base.kind == Kind::Dir);
        if removes_dir
            && let Some(tree) = state.trees.get(found.tree)
            && tree.dirty.keys().any(|path| below(path, &found.delta.path))
        {
            return false;
        }
        match (state.walk(found.tree, &found.delta.path), found.node) {
            (Ok(Some(ino)), Some((then, changes))) => {
                ino == then
                    && state
                        .node(ino)
                        .is_ok_and(|n| n.changes == changes && (force || n.writers == 0))
            }
            (Ok(None), None) => true,
            _ => false,
        }
    }

    pub(crate) fn revert(&self, tree: usize, path: &Rel) {
        let stale = self.overlay.lock().revert(tree, path);
        match stale {
            Ok(stale) => self.tell_kernel(stale),
            Err(error) => tracing::warn!("cannot take back {}: {error}", path::text(path)),
        }
    }

    pub(crate) fn tell_kernel(&self, stale: Vec<Stale>) {
        let Some(notifier) = self.notifier.lock().clone() else {
            return;
        };
        for what in stale {
            let told = match &what {
                Stale::Name(parent, name) => {
                    let name = std::os::unix::ffi::OsStrExt::from_bytes(name.as_slice());
                    notifier.inval_entry(ino(*parent), name)
                }
                Stale::Node(node) => notifier.inval_inode(ino(*node), 0, 0),
            };
            if let Err(error) = told {
                tracing::debug!("{what:?}: {error}");
            }
        }
    }
}

impl monitor::Channel for Trees {
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String> {
        let _pass = self.pass.lock();
        let delta = Note::read(&held.parked.note)
            .map_err(|e| format!("what was held cannot be read: {e}"))?;
        let tree = self
            .index(&delta.tree)
            .ok_or_else(|| format!("there is no tree `{}`", delta.tree))?;
        let mut exact = delta.effect(held.effect.saw.clone());
        // Decided with it, and nothing that the delta itself says.
        if let Some(place) = held.effect.fields.get(EXECUTES) {
            exact.fields.insert(EXECUTES.to_string(), place.clone());
        }
        if lease.manifest() != held.manifest
            || exact.payload != held.effect.payload
            || exact.base != held.effect.base
            || exact.fields != held.effect.fields
            || exact.object != held.effect.object
            || exact.operation != held.effect.operation
        {
            return Err("what was held is not what was approved; nothing was written".to_string());
        }
        let mut delta = delta;
        self.locate_content(tree, &mut delta);
        let event = lease.event();
        let open = self.holds.lock().remove(&(tree, delta.path.clone()));
        let node = match open {
            Some(open) if open.hold == held.hold => open.pending.node,
            _ => None,
        };
        let host = self.hosts.get(tree).ok_or("its tree is not open")?;
        let found = Pending::again(tree, delta, node);
        let delta = &found.delta;
        let mut leaning = Leaning::on(std::iter::once((tree, delta)));
        let result = host.intend(event.0, delta).and_then(|()| {
            self.write_down().map_err(|errno| CommitError::Failed {
                what: "note durably the intent to change",
                path: path::text(&delta.path),
                errno,
            })?;
            self.let_go(&mut leaning, &found)?;
            let version = host.carry_out(event.0, delta);
            host.set_dir_time(delta);
            host.lower()?;
            let version = version?;
            host.sync_dir(split(&delta.path).map_or(&b""[..], |(parent, _)| parent))?;
            Ok(version)
        });
        drop(lease);
        self.conclude(&found, event, result)
    }

    fn abort(&self, held: &Held, _refusal: &Refusal, _notice: &Notice) {
        let _pass = self.pass.lock();
        let Ok(delta) = Note::read(&held.parked.note) else {
            return;
        };
        let Some(tree) = self.index(&delta.tree) else {
            return;
        };
        self.holds.lock().remove(&(tree, delta.path.clone()));
        self.refuse_layer(tree, &delta.path, held.hold);
        self.revert(tree, &delta.path);
    }

    fn show(&self, held: &Held) -> Option<String> {
        let mut delta = Note::read(&held.parked.note).ok()?;
        let tree = self.index(&delta.tree)?;
        self.locate_content(tree, &mut delta);
        let host = self.hosts.get(tree)?;
        let mut change = crate::diff::change(&delta, None, &host.base, &host.upper);
        let session = self.session.upgrade();
        change.place = session.and_then(|session| {
            let policy = session.policy();
            policy
                .executes(&change.tree, &change.path)
                .map(str::to_string)
        });
        Some(change.to_string())
    }
}

fn ino(number: Ino) -> fuser::INodeNo {
    fuser::INodeNo(number)
}
