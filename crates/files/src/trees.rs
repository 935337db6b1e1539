//! The file channel: trees, the session they belong to, and how decisions are carried out.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::Notifier;
use kernel::EventId;
use kernel::policy::Glob;
use monitor::Session;
use parking_lot::{Condvar, Mutex, ReentrantMutex};

use crate::base::Base;
use crate::beside::Beside;
use crate::commit::{Host, Steps};
use crate::decide::Open;
use crate::delta::Delta;
use crate::diff::{self, Change};
use crate::fuse::Mounted;
use crate::ids::Ids;
use crate::labels::Labels;
use crate::made_in::MadeIn;
use crate::overlay::{Overlay, Precheck};
use crate::path::{self, Rel};
use crate::places::{Own, Places};
use crate::pool::Pool;
use crate::recover;
use crate::settle::{Pending, delta_at, order, staged_paths};
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

/// When a read becomes an incoming event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// When a file is opened: what its owner changed is noticed each time.
    #[default]
    Open,
    /// When content is read for the first time: opens cost nothing, and what its owner changes
    /// later is not seen inside. A commit notices it all the same.
    First,
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
    /// When a read becomes an incoming event.
    pub reads: Reads,
    /// Places whose content is not reported as incoming, unless the policy calls it sensitive.
    pub excluded: Vec<Glob>,
    /// The user's own configuration, as far as it decides what runs later.
    pub own: Own,
    /// Where the agent's tasks are looked up by the ids that requests bring: the `/proc` of the
    /// process that mounts. With it, the file server keeps to the processor of the task it serves.
    pub tasks: Option<PathBuf>,
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
            reads: Reads::default(),
            excluded: excluded.into_iter().map(|g| Glob(g.to_string())).collect(),
            own: Own::default(),
            tasks: None,
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
    /// The session keeps the trees, as its channel; not the other way round.
    pub(crate) session: Weak<Session>,
    labels: Arc<Labels>,
    ids: Ids,
    pub(crate) quiet: Duration,
    pub(crate) hosts: Vec<Host>,
    pub(crate) holds: Mutex<BTreeMap<(usize, Rel), Open>>,
    /// One pass, commit or abort at a time; a withdrawal inside a pass may commit others.
    pub(crate) pass: ReentrantMutex<()>,
    pub(crate) notifier: Arc<Mutex<Option<Notifier>>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) in_doubt: AtomicBool,
    pub(crate) places: Mutex<Places>,
    tasks: Option<PathBuf>,
    interrupted: Vec<(EventId, Result<String, String>)>,
    pub(crate) sleep: (Mutex<()>, Condvar),
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
        let first = options.reads == Reads::First;
        let overlay = Arc::new(Overlay::new(options.durable, first));
        let tag: String = session.dir().id().chars().rev().take(8).collect();
        let steps = options.steps.unwrap_or_else(|| Arc::new(|_| Ok(())));
        let own = own_places(&session);
        let mut hosts = Vec::new();
        let mut interrupted = Vec::new();
        for spec in &specs {
            let base =
                Base::open(&spec.base, &own).map_err(trouble("open the directory", &spec.base))?;
            let base = Arc::new(base);
            let upper = Upper::open(&spec.upper).map_err(trouble("open the state", &spec.upper))?;
            if options.durable {
                upper.often_durable();
            }
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
                made_in: MadeIn::default(),
                agreed: Mutex::default(),
            };
            interrupted
                .extend(recover::finish_interrupted(&host).map_err(trouble("read", &spec.upper))?);
            recover::rebuild(&overlay, index, &host.upper)
                .map_err(trouble("rebuild", &spec.upper))?;
            hosts.push(host);
        }
        if let Some(tasks) = &options.tasks {
            overlay.lock().reads.look_up_in(tasks.clone());
        }
        overlay.lock().excluded.clone_from(&options.excluded);
        let labels = Labels::start(&session, options.excluded)
            .map_err(trouble("start a thread for", Path::new("labels")))?;
        let trees = Arc::new(Self {
            overlay,
            labels,
            ids: options.ids,
            quiet: options.quiet,
            hosts,
            holds: Mutex::default(),
            pass: ReentrantMutex::new(()),
            notifier: Arc::default(),
            stopping: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            places: Mutex::new(Places::new(options.own)),
            tasks: options.tasks,
            interrupted,
            sleep: (Mutex::default(), Condvar::new()),
            session: Arc::downgrade(&session),
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
                let base = card_base(&card, upper)?;
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
        allow_many_files();
        let beside = fuse
            .try_clone()
            .and_then(|device| Beside::start(device, self.tasks.clone()))
            .map_err(trouble("serve on", device))?;
        let copies = Arc::new(Pool::new("copy", POOL_THREADS));
        let durable = self.overlay.durable;
        let syncs = durable.then(|| Arc::new(Pool::new("sync", 1)));
        let mounted = Mounted::new(
            Arc::clone(&self.overlay),
            Arc::clone(&self.labels),
            self.ids.clone(),
            Arc::clone(&self.notifier),
            Arc::clone(&copies),
            beside,
        );
        let config = fuser::Config::default();
        let session = fuser::Session::from_fd(mounted, fuse, fuser::SessionACL::All, config)
            .map_err(trouble("serve on", device))?;
        *self.notifier.lock() = Some(session.notifier());
        self.overlay.lock().begin_behind(copies, syncs);
        self.start_watching();
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
        self.tell_layers();
    }

    /// Sets what says at once that a path is refused whatever its content.
    pub fn set_precheck(&self, precheck: Precheck) {
        self.overlay.set_precheck(precheck);
    }

    /// Decides everything staged now, whether it has come to rest or not.
    pub fn settle_now(&self) {
        // What changes while it is decided comes again.
        const ROUNDS_MAX: usize = 5;
        let _pass = self.pass.lock();
        let mut any = false;
        for _ in 0..ROUNDS_MAX {
            if !self.pass(true) {
                break;
            }
            any = true;
        }
        // What is staged now does not lean on what the host will become.
        if any && let Err(error) = recover::checkpoint_now(&mut self.overlay.lock()) {
            tracing::warn!("cannot note what is staged: {error}");
        }
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

    /// What is staged, as text diffs and in words.
    pub fn changes(&self) -> Vec<Change> {
        let _pass = self.pass.lock();
        let hosts = |tree: usize| self.hosts.get(tree);
        let changes = self
            .staged()
            .iter()
            .filter_map(|p| {
                hosts(p.tree)
                    .map(|host| diff::change(&p.delta, p.origin.as_ref(), &host.base, &host.upper))
            })
            .collect();
        diff::pair(changes)
    }

    /// What was being carried out when an earlier process ended, and what became of it now:
    /// finished, or why not (then the host is as it was).
    pub fn interrupted(&self) -> &[(EventId, Result<String, String>)] {
        &self.interrupted
    }

    /// Everything staged, as one net change a path.
    pub(crate) fn staged(&self) -> Vec<Pending> {
        staged(&self.overlay)
    }

    /// The directory of the owner that a tree shows.
    pub fn base_of(&self, tree: &str) -> Option<PathBuf> {
        let index = self.index(tree)?;
        self.hosts
            .get(index)
            .map(|host| host.base.path().to_path_buf())
    }

    pub(crate) fn index(&self, tree: &str) -> Option<usize> {
        self.overlay
            .lock()
            .trees
            .iter()
            .position(|t| t.name == tree)
    }
}

/// What is staged in directories that a session left, or has open in another process. Changes
/// nothing.
///
/// # Errors
/// Which directory cannot be read, and why.
pub fn staged_changes(uppers: &[PathBuf]) -> Result<Vec<Change>, TreesError> {
    let overlay = Overlay::new(false, false);
    let mut places = Vec::new();
    for upper in uppers
        .iter()
        .filter(|upper| upper.join("tree.json").exists())
    {
        let card = crate::upper::read_card(upper).map_err(trouble("read", upper))?;
        let base = card_base(&card, upper)?;
        let own: Vec<PathBuf> = upper
            .ancestors()
            .nth(2)
            .map(Path::to_path_buf)
            .into_iter()
            .collect();
        let base = Arc::new(Base::open(&base, &own).map_err(trouble("open the directory", &base))?);
        let state = Arc::new(Upper::look_at(upper).map_err(trouble("open the state", upper))?);
        let index = overlay
            .add_tree(&card.tree, Arc::clone(&base), Arc::clone(&state))
            .map_err(trouble("look at", base.path()))?;
        recover::rebuild(&overlay, index, &state).map_err(trouble("rebuild", upper))?;
        places.push((base, state));
    }
    let changes = staged(&overlay)
        .iter()
        .filter_map(|p| {
            let (base, upper) = places.get(p.tree)?;
            Some(diff::change(&p.delta, p.origin.as_ref(), base, upper))
        })
        .collect();
    Ok(diff::pair(changes))
}

fn staged(overlay: &Overlay) -> Vec<Pending> {
    let paths = match staged_paths(&mut overlay.lock()) {
        Ok(paths) => paths,
        Err(error) => {
            tracing::warn!("cannot tell what is staged: {error}");
            return Vec::new();
        }
    };
    let mut pending: Vec<Pending> = paths
        .into_iter()
        .filter_map(|(tree, path)| delta_at(overlay, tree, &path).ok().flatten())
        .collect();
    order(&mut pending);
    pending
}

/// For what would keep the dispatcher waiting.
const POOL_THREADS: usize = 4;

/// Where the monitor keeps its own state: nothing that an agent may see or change, even if the
/// owner's directory is their home.
fn own_places(session: &Session) -> Vec<PathBuf> {
    let dir = session.dir().path();
    let sessions = dir.parent().filter(|parent| parent.ends_with("sessions"));
    let root = sessions.and_then(Path::parent);
    std::iter::once(dir)
        .chain(root)
        .map(Path::to_path_buf)
        .collect()
}

/// Each file that the agent has open is one of ours; the usual soft limit is for small programs.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // With the old limit some opens inside fail with EMFILE; nothing else depends on it.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

fn card_base(card: &Card, upper: &Path) -> Result<PathBuf, TreesError> {
    let base = path::bytes(&card.base)
        .ok_or_else(|| trouble("read", upper)("its base has no readable path"))?;
    Ok(PathBuf::from(
        <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(base),
    ))
}

impl Serving {
    /// Ends the settling thread; what is not settled stays staged.
    pub fn stop(&mut self) {
        // Under the lock, so that it is seen before the thread falls asleep.
        let asleep = self.trees.sleep.0.lock();
        self.trees.stopping.store(true, Ordering::Release);
        self.trees.sleep.1.notify_all();
        drop(asleep);
        if let Some(settler) = self.settler.take() {
            let _ = settler.join();
        }
        self.trees.overlay.lock().end_behind();
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

fn bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}
