//! Who the boundary is tried as, and how a script is run in it.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sandbox::{Plan, Tree};

use crate::probe::{ARGUMENT, DOCTOR, Order, Seen};

/// One user to run everything as.
#[derive(Clone)]
pub(crate) enum User {
    /// Whoever runs the tests.
    Current,
    /// An ordinary user, when root runs the tests.
    Ordinary(Arc<Ordinary>),
}

/// A copy of the test binary that an ordinary user can reach, and `/dev/fuse` opened to all.
pub(crate) struct Ordinary {
    folder: tempfile::TempDir,
    fuse_mode: Option<u32>,
}

const ORDINARY_ID: u32 = 48_211;

/// Current user first. As root, an ordinary one too.
pub(crate) fn users() -> Vec<User> {
    let mut users = vec![User::Current];
    if rustix::process::geteuid().is_root() {
        users.push(User::Ordinary(Arc::new(Ordinary::new())));
    } else {
        eprintln!("NOTE: not root, so only the way without root is tested");
    }
    users
}

/// False where the host forbids user namespaces: then nothing here can be tried, and says so. In
/// CI that is no excuse.
pub(crate) fn is_able(user: &User) -> bool {
    let checks = user.doctor();
    let lacking = checks.iter().find(|check| {
        let namespaces = [sandbox::CheckName::Ids, sandbox::CheckName::UserNamespaces];
        check.status == sandbox::CheckStatus::Missing && namespaces.contains(&check.name)
    });
    let Some(check) = lacking else { return true };
    eprintln!(
        "\n*** NOT TESTED as {}: this host cannot confine anything.\n*** {}: {}\n*** {}\n",
        user.name(),
        check.name,
        check.found,
        check.remedy
    );
    std::env::var_os("CI").is_some()
}

impl Ordinary {
    fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("kairos-sandbox-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir_in("/tmp")
            .unwrap();
        std::fs::copy(
            std::env::current_exe().unwrap(),
            folder.path().join("probe"),
        )
        .unwrap();
        let fuse = Path::new("/dev/fuse");
        let fuse_mode = fuse.metadata().ok().map(|data| data.permissions().mode());
        if fuse_mode.is_some() {
            std::fs::set_permissions(fuse, std::fs::Permissions::from_mode(0o666)).unwrap();
        }
        Self { folder, fuse_mode }
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        if let Some(mode) = self.fuse_mode {
            let _ = std::fs::set_permissions("/dev/fuse", std::fs::Permissions::from_mode(mode));
        }
    }
}

/// Ends a probe that hangs, so that its test fails instead of waiting for ever.
struct Watchdog(#[expect(dead_code, reason = "its end is the signal")] std::sync::mpsc::Sender<()>);

impl Watchdog {
    fn over(child: &Child) -> Self {
        let (sender, finished) = std::sync::mpsc::channel::<()>();
        let pid = rustix::process::Pid::from_child(child);
        std::thread::spawn(move || {
            let limit = std::time::Duration::from_secs(60);
            if finished.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        Self(sender)
    }
}

/// While it lives, only root can open `/dev/fuse`; no other check may run then.
pub(crate) struct ClosedFuse(
    u32,
    #[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>,
);

static FUSE: RwLock<()> = RwLock::new(());

impl ClosedFuse {
    pub(crate) fn new() -> Self {
        let alone = FUSE.write().unwrap_or_else(PoisonError::into_inner);
        let mode = std::fs::metadata("/dev/fuse").unwrap().permissions().mode();
        std::fs::set_permissions("/dev/fuse", std::fs::Permissions::from_mode(0o600)).unwrap();
        Self(mode, alone)
    }
}

impl Drop for ClosedFuse {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions("/dev/fuse", std::fs::Permissions::from_mode(self.0));
    }
}

/// Taken by every check but the one that closes the device.
pub(crate) fn open_fuse() -> RwLockReadGuard<'static, ()> {
    FUSE.read().unwrap_or_else(PoisonError::into_inner)
}

impl User {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Current if rustix::process::geteuid().is_root() => "root",
            Self::Current | Self::Ordinary(_) => "ordinary",
        }
    }

    pub(crate) fn uid(&self) -> u32 {
        match self {
            Self::Current => rustix::process::geteuid().as_raw(),
            Self::Ordinary(_) => ORDINARY_ID,
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        match self {
            Self::Current => std::env::var_os("HOME").map_or("/root".into(), PathBuf::from),
            Self::Ordinary(_) => "/home/kairos-ordinary".into(),
        }
    }

    /// A plan for a shell script, with nothing but the system in view.
    pub(crate) fn plan(&self, script: &str) -> Plan {
        let command = ["/bin/bash", "-c", script].map(OsString::from).to_vec();
        let mut plan = Plan::new(command, self.home(), self.home());
        plan.env = sandbox::plan::environment(
            [("PATH".into(), sandbox::plan::DEFAULT_PATH.into())],
            &[],
            &self.home(),
            [],
        );
        plan
    }

    pub(crate) fn plan_with_tree(&self, script: &str) -> Plan {
        let mut plan = self.plan(script);
        plan.trees.push(Tree {
            name: "work".into(),
            target: "/srv/work".into(),
        });
        plan
    }

    pub(crate) fn run(&self, script: &str) -> Seen {
        self.confine(self.plan(script))
    }

    pub(crate) fn confine(&self, plan: Plan) -> Seen {
        self.order(Order::new(plan))
    }

    pub(crate) fn order(&self, order: Order) -> Seen {
        let child = self.spawn(&order);
        let finished = Watchdog::over(&child);
        let output = child.wait_with_output().unwrap();
        drop(finished);
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("the probe ended with {}: {error}: {text}", output.status)
        })
    }

    pub(crate) fn doctor(&self) -> Vec<sandbox::Check> {
        let output = self
            .command()
            .arg(DOCTOR)
            .output()
            .expect("the probe starts");
        serde_json::from_slice(&output.stdout).expect("checks")
    }

    /// What doctor says where the limit of user namespaces is zero.
    pub(crate) fn doctor_without_namespaces(&self) -> Vec<sandbox::Check> {
        let output = self
            .as_user("unshare")
            .args(["-U", "--map-current-user", "--keep-caps", "sh", "-c"])
            .arg("echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"")
            .arg("sh")
            .arg(self.program())
            .args([ARGUMENT, DOCTOR])
            .output()
            .expect("unshare runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// The same script without a boundary.
    pub(crate) fn outside(&self, script: &str, path: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let script = script.replace("/tmp/", &format!("{}/", folder.path().display()));
        let mut command = self.as_user("/bin/bash");
        if let Self::Ordinary(_) = self {
            command.env("HOME", folder.path());
        }
        let output = command
            .arg("-c")
            .arg(script)
            .env("PATH", path)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn spawn(&self, order: &Order) -> Child {
        let mut child = self
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the probe starts");
        let bytes = serde_json::to_vec(order).unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        child
    }

    fn command(&self) -> Command {
        let mut command = self.as_user(self.program());
        command
            .arg(ARGUMENT)
            .env("KAIROS_TEST_SECRET", "monitor-secret")
            .current_dir("/");
        command
    }

    fn program(&self) -> PathBuf {
        match self {
            Self::Current => std::env::current_exe().unwrap(),
            Self::Ordinary(ordinary) => ordinary.folder.path().join("probe"),
        }
    }

    fn as_user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match self {
            Self::Current => Command::new(program),
            Self::Ordinary(_) => {
                let id = ORDINARY_ID.to_string();
                let mut command = Command::new("setpriv");
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
                command.arg(program);
                command
            }
        }
    }
}
