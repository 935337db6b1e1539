//! The file channel: trees, the session they belong to, and how decisions are carried out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::Notifier;
use kernel::policy::Glob;
use kernel::{EventId, HoldId, Notice, Refusal};
use monitor::{Held, Outcome, Session};
use parking_lot::{Condvar, Mutex, ReentrantMutex};
use serde::{Deserialize, Serialize};
use store::{Lease, Parked};

use crate::attr::Kind;
use crate::base::Base;
use crate::commit::{CommitError, Host, Steps};
use crate::delta::Delta;
use crate::fuse::Mounted;
use crate::ids::Ids;
use crate::labels::Labels;
use crate::outcome::Stale;
use crate::overlay::{Overlay, Precheck};
use crate::path::{self, Rel, below, split};
use crate::recover;
use crate::settle::{Pending, delta_at, due, order};
use crate::tree::Ino;
use crate::upper::{Card, Upper};

/// One tree: a directory of the owner, and where its staged changes lie.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    /// Its name: `workspace`, `codex-home`, ...
    pub name: String,
    /// The owner's directory.
    pub base: PathBuf,
    /// The session's private directory for it.
    pub upper: PathBuf,
}

/// How trees are served.
pub struct Options {
    /// Owner ids inside and outside.
    pub ids: Ids,
    /// How long a path has to be quiet before its change is decided.
    pub quiet: Duration,
    /// Whether fsync inside waits for the disk. Not needed for safety: what is staged becomes
    /// durable when it is committed.
    pub durable: bool,
    /// Places whose content is not reported as incoming, unless the policy calls it sensitive.
    pub excluded: Vec<Glob>,
    /// For tests: called before each step of a commit.
    #[doc(hidden)]
    pub steps: Option<Arc<Steps>>,
}

impl Default for Options {
    fn default() -> Self {
        let excluded = [
            "**/.git/objects/**",
            "**/.git/index",
            "**/node_modules/**",
            "**/target/**",
            "**/.venv/**",
            "**/__pycache__/**",
            "*.so",
            "*.o",
            "*.a",
            "*.rlib",
            "*.pyc",
            "*.class",
        ];
        Self {
            ids: Ids::default(),
            quiet: Duration::from_millis(250),
            durable: false,
            excluded: excluded.into_iter().map(|g| Glob(g.to_string())).collect(),
            steps: None,
        }
    }
}

/// Why trees cannot be opened or served.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} `{path}`: {why}")]
pub struct TreesError {
    what: &'static str,
    path: String,
    why: String,
}

fn trouble<E: std::fmt::Display>(what: &'static str, path: &Path) -> impl Fn(E) -> TreesError {
    let path = path.display().to_string();
    move |why| TreesError {
        what,
        path: path.clone(),
        why: why.to_string(),
    }
}

/// The trees of a session.
pub struct Trees {
    pub(crate) overlay: Arc<Overlay>,
    session: Arc<Session>,
    labels: Arc<Labels>,
    ids: Ids,
    quiet: Duration,
    pub(crate) hosts: Vec<Host>,
    holds: Mutex<BTreeMap<(usize, Rel), Open>>,
    /// One pass, commit or abort at a time; a withdrawal inside a pass may commit others.
    pass: ReentrantMutex<()>,
    notifier: Mutex<Option<Notifier>>,
    stopping: AtomicBool,
    in_doubt: AtomicBool,
    sleep: (Mutex<()>, Condvar),
}

/// A hold of ours.
struct Open {
    hold: HoldId,
    pending: Pending,
}

/// What is recorded with a hold, enough to carry it out later.
#[derive(Serialize, Deserialize)]
struct Note {
    tree: String,
    path: String,
    operation: String,
    kind: String,
    delta: Delta,
}

/// Trees being served. Dropped, the settling thread ends; the file system ends with its mount.
pub struct Serving {
    trees: Arc<Trees>,
    settler: Option<JoinHandle<()>>,
    server: Option<fuser::BackgroundSession>,
}

impl Trees {
    /// Opens trees, with whatever an earlier process left staged in them.
    ///
    /// # Errors
    /// Which directory cannot be opened, and why.
    pub fn new(
        session: Arc<Session>,
        specs: Vec<TreeSpec>,
        options: Options,
    ) -> Result<Arc<Self>, TreesError> {
        let overlay = Arc::new(Overlay::new(options.durable));
        let tag: String = session.dir().id().chars().rev().take(8).collect();
        let steps = options.steps.unwrap_or_else(|| Arc::new(|_| Ok(())));
        let mut hosts = Vec::new();
        for spec in &specs {
            let base = Base::open(&spec.base).map_err(trouble("open the directory", &spec.base))?;
            let base = Arc::new(base);
            let upper = Upper::open(&spec.upper).map_err(trouble("open the state", &spec.upper))?;
            let upper = Arc::new(upper);
            let card = Card {
                tree: spec.name.clone(),
                base: path::text(bytes(&spec.base)),
            };
            upper
                .write_card(&card)
                .map_err(trouble("write the state", &spec.upper))?;
            let index = overlay
                .add_tree(&spec.name, Arc::clone(&base), Arc::clone(&upper))
                .map_err(trouble("look at", &spec.base))?;
            let host = Host {
                base,
                upper,
                tag: tag.clone(),
                steps: Arc::clone(&steps),
            };
            recover::rebuild(&overlay, index, &host).map_err(trouble("rebuild", &spec.upper))?;
            hosts.push(host);
        }
        let labels = Labels::start(Some(Arc::clone(&session)), options.excluded)
            .map_err(trouble("start a thread for", Path::new("labels")))?;
        let trees = Arc::new(Self {
            overlay,
            labels,
            ids: options.ids,
            quiet: options.quiet,
            hosts,
            holds: Mutex::default(),
            pass: ReentrantMutex::new(()),
            notifier: Mutex::default(),
            stopping: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            sleep: (Mutex::default(), Condvar::new()),
            session,
        });
        trees.remember_holds();
        Ok(trees)
    }

    /// Opens the trees of a session that has ended, from what it left in their directories.
    ///
    /// # Errors
    /// Which directory cannot be opened, and why.
    pub fn reopen(session: Arc<Session>, uppers: &[PathBuf]) -> Result<Arc<Self>, TreesError> {
        let specs = uppers
            .iter()
            .map(|upper| {
                let card = crate::upper::read_card(upper).map_err(trouble("read", upper))?;
                let base = path::bytes(&card.base)
                    .ok_or_else(|| trouble("read", upper)("its base has no readable path"))?;
                let base = PathBuf::from(
                    <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&base),
                );
                Ok(TreeSpec {
                    name: card.tree,
                    base,
                    upper: upper.clone(),
                })
            })
            .collect::<Result<Vec<_>, TreesError>>()?;
        Self::new(session, specs, Options::default())
    }

    /// Serves the trees on an open `/dev/fuse` that is mounted already: the mount's root shows one
    /// directory a tree.
    ///
    /// # Errors
    /// When the kernel and we do not understand each other.
    pub fn serve(self: &Arc<Self>, fuse: OwnedFd) -> Result<Serving, TreesError> {
        let device = Path::new("/dev/fuse");
        let mounted = Mounted::new(
            Arc::clone(&self.overlay),
            Arc::clone(&self.labels),
            self.ids.clone(),
        )
        .map_err(trouble("serve on", device))?;
        let config = fuser::Config::default();
        let session = fuser::Session::from_fd(mounted, fuse, fuser::SessionACL::All, config)
            .map_err(trouble("serve on", device))?;
        *self.notifier.lock() = Some(session.notifier());
        let server = session.spawn().map_err(trouble("serve on", device))?;
        let trees = Arc::clone(self);
        let settler = std::thread::Builder::new()
            .name("files-settle".to_string())
            .spawn(move || trees.settle_until_stopped())
            .map_err(trouble("start a thread for", device))?;
        Ok(Serving {
            trees: Arc::clone(self),
            settler: Some(settler),
            server: Some(server),
        })
    }

    /// Returns when everything the agent has read so far was reported.
    pub fn drain(&self) {
        self.labels.drain();
    }

    /// Sets what says at once that a path is refused whatever its content.
    pub fn set_precheck(&self, precheck: Precheck) {
        self.overlay.set_precheck(precheck);
    }

    /// Decides everything staged now, whether it has come to rest or not.
    pub fn settle_now(&self) {
        self.pass(true);
    }

    /// Holds everything that a session which was cut off left staged and undecided.
    pub fn hold_undecided(&self) {
        self.in_doubt.store(true, Ordering::Release);
        for pending in self.staged() {
            self.overlay
                .lock()
                .touch(pending.tree, pending.delta.path, false);
        }
        self.pass(true);
        self.in_doubt.store(false, Ordering::Release);
    }

    /// What is staged and neither committed nor held: to be proposed, or reviewed after a crash.
    pub fn undecided(&self) -> Vec<Delta> {
        let _pass = self.pass.lock();
        let holds = self.holds.lock();
        self.staged()
            .into_iter()
            .filter(|p| {
                holds
                    .get(&(p.tree, p.delta.path.clone()))
                    .is_none_or(|o| !o.pending.delta.same(&p.delta))
            })
            .map(|p| p.delta)
            .collect()
    }

    /// Everything staged, as one net change a path.
    pub(crate) fn staged(&self) -> Vec<Pending> {
        let paths = self.overlay.lock().staged_paths();
        let mut pending: Vec<Pending> = paths
            .into_iter()
            .filter_map(|(tree, path)| delta_at(&self.overlay, tree, &path).ok().flatten())
            .collect();
        order(&mut pending);
        pending
    }

    /// The directory of the owner that a tree shows.
    pub fn base_of(&self, tree: &str) -> Option<PathBuf> {
        let index = self.index(tree)?;
        self.hosts
            .get(index)
            .map(|host| host.base.path().to_path_buf())
    }

    fn index(&self, tree: &str) -> Option<usize> {
        self.overlay
            .lock()
            .trees
            .iter()
            .position(|t| t.name == tree)
    }

    fn settle_until_stopped(&self) {
        let tick = (self.quiet / 3).max(Duration::from_millis(5));
        while !self.stopping.load(Ordering::Acquire) {
            let mut asleep = self.sleep.0.lock();
            self.sleep.1.wait_for(&mut asleep, tick);
            drop(asleep);
            self.pass(false);
        }
    }

    fn remember_holds(&self) {
        for held in self.session.held() {
            if held.effect.channel != kernel::Channel::File {
                continue;
            }
            let Ok(note) = serde_json::from_str::<Note>(&held.parked.note) else {
                continue;
            };
            let Some(tree) = self.index(&note.tree) else {
                continue;
            };
            if let Ok(Some(pending)) = delta_at(&self.overlay, tree, &note.delta.path) {
                let key = (tree, note.delta.path);
                self.holds.lock().insert(
                    key,
                    Open {
                        hold: held.hold,
                        pending,
                    },
                );
            }
        }
    }

    /// One round: what has come to rest is decided, and what is released is carried out.
    fn pass(&self, force: bool) {
        let _pass = self.pass.lock();
        let paths = match due(&self.overlay, self.quiet, force) {
            Ok(paths) => paths,
            Err(error) => {
                tracing::warn!("cannot tell what changed: {error}");
                return;
            }
        };
        let mut pending = Vec::new();
        for (tree, path) in paths {
            match delta_at(&self.overlay, tree, &path) {
                Ok(Some(found)) => pending.push(found),
                Ok(None) => self.withdraw(tree, &path),
                Err(error) => {
                    tracing::warn!("cannot tell what changed at {}: {error}", path::text(&path));
                    self.overlay.lock().touch(tree, path, false);
                }
            }
        }
        if !pending.is_empty() {
            order(&mut pending);
            self.decide(pending);
        }
    }

    fn decide(&self, pending: Vec<Pending>) {
        let mut released: Vec<(Pending, Lease)> = Vec::new();
        let mut refused: HashSet<(usize, Rel)> = HashSet::new();
        for found in pending {
            if !self.is_current(&found) {
                self.overlay
                    .lock()
                    .touch(found.tree, found.delta.path.clone(), false);
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
            let effect = found.delta.effect(self.builds_on(&found));
            let parked = Parked {
                note: note(&found.delta),
                blob: None,
            };
            let mut on_hold = |held: &Held| {
                let open = Open {
                    hold: held.hold,
                    pending: found.clone(),
                };
                self.holds.lock().insert(key.clone(), open);
            };
            let outcome = if self.in_doubt.load(Ordering::Acquire) {
                self.session.propose_in_doubt(effect, parked, &mut on_hold)
            } else {
                self.session.propose(effect, parked, &mut on_hold)
            };
            match outcome {
                Outcome::Released(lease) => released.push((found, lease)),
                Outcome::Held(_) => {}
                Outcome::Refused { .. } => {
                    if let Some(origin) = &found.origin {
                        refused.insert((found.tree, origin.clone()));
                    }
                    self.revert(found.tree, &found.delta.path);
                }
            }
        }
        self.carry_out(released);
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

    /// Carries out what was released: one intent record and one directory sync for many.
    fn carry_out(&self, released: Vec<(Pending, Lease)>) {
        if released.is_empty() {
            return;
        }
        let mut results: Vec<(
            Pending,
            EventId,
            Result<Option<crate::attr::Version>, CommitError>,
        )> = Vec::new();
        let mut ready = Vec::new();
        for (found, lease) in released {
            let Some(host) = self.hosts.get(found.tree) else {
                continue;
            };
            match host.intend(lease.event().0, &found.delta) {
                Ok(()) => ready.push((found, lease)),
                Err(error) => results.push((found, lease.event(), Err(error))),
            }
        }
        // The permits were recorded one by one and become durable here, all together.
        if let Err(error) = self.session.sync() {
            tracing::warn!("{error}");
        }
        for host in &self.hosts {
            if let Err(error) = host.upper.sync() {
                tracing::warn!("the intents are not durable: {error}");
            }
        }
        let mut dirs: BTreeSet<(usize, Rel)> = BTreeSet::new();
        for (found, lease) in ready {
            let Some(host) = self.hosts.get(found.tree) else {
                continue;
            };
            let event = lease.event();
            let result = host.carry_out(event.0, &found.delta);
            if result.is_ok() {
                let parent = split(&found.delta.path).map(|(parent, _)| parent.to_vec());
                dirs.insert((found.tree, parent.unwrap_or_default()));
            }
            drop(lease);
            results.push((found, event, result));
        }
        for (tree, dir) in dirs {
            if let Some(Err(error)) = self.hosts.get(tree).map(|host| host.sync_dir(&dir)) {
                tracing::warn!("{error}");
            }
        }
        for (found, event, result) in results {
            let told = self.conclude(&found, event, result);
            self.session.done(event, told);
        }
    }

    /// Brings view and journal in line with what became of a delta; says it for people.
    fn conclude(
        &self,
        found: &Pending,
        event: EventId,
        result: Result<Option<crate::attr::Version>, CommitError>,
    ) -> Result<String, String> {
        let delta = &found.delta;
        let Some(host) = self.hosts.get(found.tree) else {
            return Err("its tree is not open".to_string());
        };
        match result {
            Ok(version) => {
                let mut state = self.overlay.lock();
                let kept = state.committed(found.tree, &delta.path, version, found.node, true);
                drop(state);
                if let Err(error) = kept {
                    tracing::warn!("{}: {error}", path::text(&delta.path));
                }
                host.finished(event.0, true, "");
                Ok(match &delta.new {
                    Some(new) if new.kind == Kind::File => format!("{} bytes written", new.size),
                    Some(new) => format!("{} written", new.kind.name()),
                    None => "removed".to_string(),
                })
            }
            Err(CommitError::Stopped(step)) => Err(format!("stopped at step `{step}`")),
            Err(error) => {
                host.finished(event.0, false, &error.to_string());
                let mut text = error.to_string();
                match &error {
                    CommitError::Changed(_) => {
                        self.overlay
                            .lock()
                            .touch(found.tree, delta.path.clone(), false);
                    }
                    _ => {
                        if let Some(kept) = host.keep_aside(delta) {
                            text.push_str(&format!(
                                "; the agent's version is kept in `{}`",
                                kept.display()
                            ));
                        }
                    }
                }
                Err(text)
            }
        }
    }

    fn is_current(&self, found: &Pending) -> bool {
        let mut state = self.overlay.lock();
        match (state.walk(found.tree, &found.delta.path), found.node) {
            (Ok(Some(ino)), Some((then, changes))) => {
                ino == then && state.node(ino).is_ok_and(|n| n.changes == changes)
            }
            (Ok(None), None) => true,
            _ => false,
        }
    }

    fn withdraw(&self, tree: usize, path: &Rel) {
        let open = self.holds.lock().remove(&(tree, path.clone()));
        if let Some(open) = open {
            self.session.withdraw(open.hold);
        }
    }

    fn revert(&self, tree: usize, path: &Rel) {
        let stale = self.overlay.lock().revert(tree, path);
        match stale {
            Ok(stale) => self.tell_kernel(stale),
            Err(error) => tracing::warn!("cannot take back {}: {error}", path::text(path)),
        }
    }

    fn tell_kernel(&self, stale: Vec<Stale>) {
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
        let note: Note = serde_json::from_str(&held.parked.note)
            .map_err(|e| format!("what was held cannot be read: {e}"))?;
        let delta = note.delta;
        let tree = self
            .index(&delta.tree)
            .ok_or_else(|| format!("there is no tree `{}`", delta.tree))?;
        let exact = delta.effect(held.effect.saw.clone());
        if lease.manifest() != held.manifest
            || exact.payload != held.effect.payload
            || exact.base != held.effect.base
            || exact.fields != held.effect.fields
            || exact.object != held.effect.object
            || exact.operation != held.effect.operation
        {
            return Err("what was held is not what was approved; nothing was written".to_string());
        }
        let event = lease.event();
        let open = self.holds.lock().remove(&(tree, delta.path.clone()));
        let node = match open {
            Some(open) if open.hold == held.hold => open.pending.node,
            _ => None,
        };
        let host = self.hosts.get(tree).ok_or("its tree is not open")?;
        let result = host.intend(event.0, &delta).and_then(|()| {
            host.upper.sync().map_err(|e| CommitError::Failed {
                what: "note the intent to change",
                path: path::text(&delta.path),
                errno: e.to_string(),
            })?;
            let version = host.carry_out(event.0, &delta)?;
            host.sync_dir(split(&delta.path).map_or(&b""[..], |(parent, _)| parent))?;
            Ok(version)
        });
        drop(lease);
        self.conclude(&Pending::again(tree, delta, node), event, result)
    }

    fn abort(&self, held: &Held, _refusal: &Refusal, _notice: &Notice) {
        let _pass = self.pass.lock();
        let Ok(note) = serde_json::from_str::<Note>(&held.parked.note) else {
            return;
        };
        let Some(tree) = self.index(&note.tree) else {
            return;
        };
        self.holds.lock().remove(&(tree, note.delta.path.clone()));
        self.revert(tree, &note.delta.path);
    }
}

impl Serving {
    /// Ends the settling thread; what is not settled stays staged.
    pub fn stop(&mut self) {
        self.trees.stopping.store(true, Ordering::Release);
        self.trees.sleep.1.notify_all();
        if let Some(settler) = self.settler.take() {
            let _ = settler.join();
        }
    }

    /// Waits for the file system to end, which it does when its last mount is gone.
    pub fn join(mut self) {
        self.stop();
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

fn note(delta: &Delta) -> String {
    let note = Note {
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
        delta: delta.clone(),
    };
    // Plain data; it has no way to fail. An empty note would be refused at its commit.
    serde_json::to_string(&note).unwrap_or_default()
}

fn ino(number: Ino) -> fuser::INodeNo {
    fuser::INodeNo(number)
}

fn bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}
