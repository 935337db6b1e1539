//! A session with trees on a real FUSE mount, for tests. Needs root, or a user namespace in which
//! one may mount (`unshare -Urm`).
#![allow(
    unreachable_pub,
    missing_docs,
    reason = "a module of each test file, no crate of its own"
)]
#![allow(dead_code, reason = "each test file uses its own part")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use files::{CommitError, Options, Serving, TreeSpec, Trees};
use kernel::policy::{ExecutesRule, Glob, Policy, Rules, SensitiveRule, SourcePattern, SourceRule};
use kernel::{Channel, Effect, Kind, KindSet, Level, Refusal};
use monitor::session::{Parts, SystemChance};
use monitor::{Happening, Session};
use store::{Blobs, Log, Record, SessionDir};

/// Nothing is decided until a test says so.
pub fn slow() -> Options {
    Options {
        quiet: Duration::from_secs(1000),
        ..Options::default()
    }
}

/// Everything of one test. Fields are dropped in order: the mount goes before its directories.
pub struct World {
    pub mount: Mount,
    pub serving: Option<Serving>,
    pub trees: Arc<Trees>,
    pub session: Arc<Session>,
    pub seen: Arc<Mutex<Vec<String>>>,
    pub disk: Arc<Disk>,
}

/// Directories that outlive a session.
pub struct Disk {
    pub dir: tempfile::TempDir,
    pub session: PathBuf,
    /// Where in it the owner's directory lies.
    pub base: PathBuf,
}

pub struct Mount(pub PathBuf);

/// A directory in memory, because thousands of commits each wait for the disk; with
/// `KAIROS_FILES_SCRATCH` set to a directory, there (to test over another file system).
pub fn scratch() -> tempfile::TempDir {
    match std::env::var_os("KAIROS_FILES_SCRATCH") {
        Some(dir) => tempfile::tempdir_in(dir).unwrap(),
        None => tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap()),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

impl Disk {
    pub fn new() -> Arc<Self> {
        let dir = scratch();
        for name in ["base", "mnt", "session"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let (session, base) = (dir.path().join("session"), dir.path().join("base"));
        Arc::new(Self { dir, session, base })
    }

    /// The owner's directory lies in another one of the owner's.
    pub fn within(place: &str) -> Arc<Self> {
        let mut disk = Self::new();
        let found = Arc::get_mut(&mut disk).unwrap();
        found.base.push(place);
        std::fs::create_dir_all(&found.base).unwrap();
        disk
    }

    /// The monitor's state lies in the owner's directory, as with a home as workspace.
    pub fn with_session_inside() -> Arc<Self> {
        let dir = scratch();
        for name in ["base", "mnt"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let session = dir.path().join("base/.state/kairos/sessions/s1");
        std::fs::create_dir_all(&session).unwrap();
        let base = dir.path().join("base");
        Arc::new(Self { dir, session, base })
    }

    pub fn base(&self) -> PathBuf {
        self.base.clone()
    }

    pub fn session_dir(&self) -> SessionDir {
        SessionDir::at(&self.session)
    }

    pub fn upper(&self) -> PathBuf {
        self.session_dir().tree("workspace")
    }
}

/// Paths are trusted, so that plain changes are released; git hooks run later, so they are held.
pub fn policy() -> Policy {
    Policy {
        sources: vec![SourceRule {
            of: SourcePattern::Location {
                tree: "*".into(),
                path: Glob("**".into()),
            },
            trusted: KindSet::of(&[Kind::Path]),
        }],
        sensitive: vec![SensitiveRule {
            of: SourcePattern::Location {
                tree: "*".into(),
                path: Glob(".env*".into()),
            },
            level: Level::Critical,
        }],
        executes: vec![
            ExecutesRule {
                path: Glob("**/.git/hooks/**".into()),
                place: "git hook".into(),
            },
            ExecutesRule {
                path: Glob("held*".into()),
                place: "a place of tests".into(),
            },
        ],
        ..Policy::default()
    }
}

/// Refuses changes of paths that start with `refused`.
pub struct RefuseRule;

impl Rules for RefuseRule {
    fn forbids(&self, effect: &Effect, _: Level, _: bool) -> Result<Option<Refusal>, String> {
        let object = effect.object.to_string();
        Ok(object
            .split('/')
            .any(|part| part.starts_with("refused"))
            .then(|| Refusal::Rule {
                rule: "test".into(),
                says: None,
            }))
    }
}

pub fn session(disk: &Disk, recovered: bool) -> Arc<Session> {
    let dir = disk.session_dir();
    std::fs::create_dir_all(dir.path()).unwrap();
    let clock = || "2026-01-01T00:00:00.000Z".to_string();
    let log = if recovered && dir.log().exists() {
        Log::resume(&dir.log(), clock).unwrap().0
    } else {
        let mut log = Log::create(&dir.log(), clock).unwrap();
        log.append(&Record::Header {
            format: store::record::FORMAT,
            session: "test".into(),
            workspace: "w".into(),
            epoch: String::new(),
            command: vec![],
            started: String::new(),
            version: String::new(),
        })
        .unwrap();
        log
    };
    Session::new(Parts {
        policy: Arc::new(policy()),
        rules: Arc::new(RefuseRule),
        log,
        blobs: Blobs::open_dir(&dir.blobs()).unwrap(),
        dir,
        workspace: "w".into(),
        chance: Arc::new(SystemChance),
        clock: Arc::new(monitor::session::SystemClock::default()),
        labels: None,
        recovered: None,
    })
}

impl World {
    pub fn new(fill: impl FnOnce(&Path)) -> Self {
        let disk = Disk::new();
        fill(&disk.base());
        Self::on(disk, Options::default())
    }

    pub fn on(disk: Arc<Disk>, options: Options) -> Self {
        let options = Options {
            tasks: Some("/proc".into()),
            ..options
        };
        let session = session(&disk, true);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        session.subscribe(Box::new(move |happening| {
            told.lock().unwrap().push(line(happening));
        }));
        let spec = TreeSpec {
            name: "workspace".into(),
            base: disk.base(),
            upper: disk.upper(),
        };
        let trees = Trees::new(Arc::clone(&session), vec![spec], options).unwrap();
        session.attach(
            Channel::File,
            Arc::clone(&trees) as Arc<dyn monitor::Channel>,
        );
        let hook = Arc::clone(&trees);
        session.before_propose(Box::new(move || hook.drain()));
        let (mount, fd) = mount(&disk.dir.path().join("mnt"));
        let serving = trees.serve(fd).unwrap();
        Self {
            mount,
            serving: Some(serving),
            trees,
            session,
            seen,
            disk,
        }
    }

    /// The tree as the agent sees it.
    pub fn inside(&self) -> PathBuf {
        self.mount.0.join("workspace")
    }

    pub fn base(&self) -> PathBuf {
        self.disk.base()
    }

    pub fn settle(&self) {
        self.trees.settle_now();
    }

    pub fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// What could not be carried out, by the log.
    pub fn failed(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.session.dir().log()).unwrap();
        log.lines()
            .filter(|line| {
                line.contains("conflict") || line.contains("cannot") || line.contains("\"Err\"")
            })
            .map(str::to_string)
            .collect()
    }

    pub fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(
                Instant::now() < until,
                "waited in vain: {what}; seen {:?}",
                self.seen()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub fn line(happening: &Happening) -> String {
    match happening {
        Happening::Released { effect, .. } => {
            format!("released {} {}", effect.operation.name(), effect.object)
        }
        Happening::Refused { effect, .. } => {
            format!("refused {} {}", effect.operation.name(), effect.object)
        }
        Happening::Held(held) => format!(
            "held {} {}",
            held.effect.operation.name(),
            held.effect.object
        ),
        Happening::Committed { held, result } => {
            format!("committed {} {:?}", held.effect.object, result)
        }
        Happening::Aborted { held, .. } => format!("aborted {}", held.effect.object),
        Happening::Due { limit, .. } => format!("due: {limit}"),
        Happening::Withdrawn(_) => "withdrawn".to_string(),
    }
}

/// Steps of commits stop for good after so many of them, as in a crash; `count` counts them all.
pub fn stopped_after(after: usize, count: Arc<AtomicUsize>, options: Options) -> Options {
    let steps = move |step: &'static str| {
        if count.fetch_add(1, Ordering::SeqCst) < after {
            Ok(())
        } else {
            Err(CommitError::Stopped(step))
        }
    };
    Options {
        steps: Some(Arc::new(steps)),
        ..options
    }
}

pub fn mount(at: &Path) -> (Mount, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::MountFlags;
    let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},allow_other,default_permissions",
        fd.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount(
        "kairos",
        at,
        "fuse",
        MountFlags::NODEV | MountFlags::NOSUID,
        Some(options.as_c_str()),
    )
    .expect("mounting needs root or a user namespace: run the tests under `unshare -Urm`");
    (Mount(at.to_path_buf()), fd)
}

/// Everything below a directory: path, kind, mode, content or target.
pub fn snapshot(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let mut lines = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&at)
            .unwrap()
            .map(|e| e.unwrap())
            .collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let mode = meta.permissions().mode() & 0o7777;
            let what = if meta.is_dir() {
                open.push(path.clone());
                "dir".to_string()
            } else if meta.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if meta.file_type().is_fifo() {
                "fifo".to_string()
            } else if meta.file_type().is_socket() {
                "socket".to_string()
            } else {
                match std::fs::read(&path) {
                    Ok(bytes) if bytes.len() < 200 => {
                        format!("{:?}", String::from_utf8_lossy(&bytes))
                    }
                    Ok(bytes) => {
                        format!("{} bytes {}", bytes.len(), kernel::Digest::of(&bytes).hex())
                    }
                    Err(error) => format!("{error}"),
                }
            };
            let mode = if meta.is_symlink() {
                String::new()
            } else {
                format!("{mode:04o} ")
            };
            lines.push(format!("{name} {mode}{what}"));
        }
    }
    lines.sort();
    lines
}

/// Runs a command to its end and returns what it printed.
pub fn run(dir: &Path, command: &str) -> String {
    let out = std::process::Command::new("sh")
        .arg("-ec")
        .arg(command)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "`{command}` failed: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}
