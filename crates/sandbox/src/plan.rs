//! What the agent will see, as data: no I/O happens here, so that a plan can be tested, printed
//! and compared.

mod lossless;
mod passing;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::SandboxError;

pub(crate) use passing::{read, write};

/// Everything that decides how one agent is confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Program and arguments. The program is a path or a name to look up in `PATH` of `env`.
    #[serde(with = "lossless::os_strings")]
    pub command: Vec<OsString>,
    /// Working directory of the agent, in its own view.
    #[serde(with = "lossless::path")]
    pub cwd: PathBuf,
    /// The agent's whole environment; see [`environment`].
    #[serde(with = "lossless::environment")]
    pub env: BTreeMap<OsString, OsString>,
    /// Host paths shown read-only at the same place.
    pub read_only: Vec<Bind>,
    /// Directories below the FUSE mount, and where the agent sees them.
    pub trees: Vec<Tree>,
    /// Files that exist only in the agent's view, or replace one there.
    pub files: Vec<SyntheticFile>,
    /// Paths that read as empty: secrets inside what is shown.
    #[serde(with = "lossless::paths")]
    pub masked: Vec<PathBuf>,
    /// The agent's home: an empty private directory at the path of the real one.
    #[serde(with = "lossless::path")]
    pub home: PathBuf,
    /// Further private, writable, empty directories besides home, `/tmp`, `/var/tmp` and `/run`.
    #[serde(with = "lossless::paths")]
    pub private: Vec<PathBuf>,
    /// Host name inside.
    pub hostname: String,
    /// Ports on the agent's own loopback that are captured as well, because services of the host's
    /// loopback are meant to be reached through them.
    pub host_ports: Vec<u16>,
    /// Whether the agent may make user namespaces of its own (its own bubblewrap needs them).
    pub nested_namespaces: bool,
    /// Most processes and threads at a time.
    pub processes_max: Option<u64>,
    /// Most bytes that each private directory may hold; the kernel's default is half of memory.
    pub private_bytes_max: Option<u64>,
}

impl Plan {
    /// A plan that shows the system read-only and nothing else: add trees, tools and files to it.
    pub fn new(command: Vec<OsString>, cwd: PathBuf, home: PathBuf) -> Self {
        Self {
            command,
            cwd,
            env: BTreeMap::new(),
            read_only: system_binds(),
            trees: Vec::new(),
            files: Vec::new(),
            masked: SYSTEM_SECRETS.iter().map(PathBuf::from).collect(),
            home,
            private: Vec::new(),
            hostname: "kairos".to_owned(),
            host_ports: Vec::new(),
            nested_namespaces: true,
            processes_max: None,
            private_bytes_max: None,
        }
    }

    /// Refuses what cannot be built, so that a mistake is told before anything is started.
    pub fn check(&self) -> Result<(), SandboxError> {
        let program = self.command.first().filter(|program| !program.is_empty());
        if program.is_none() {
            return Err(invalid("there is no command to run; give one after `--`"));
        }
        let nul = |text: &OsStr| text.as_encoded_bytes().contains(&0);
        if self.command.iter().any(|word| nul(word)) {
            return Err(invalid("the command holds a NUL byte; remove it"));
        }
        if self.env.iter().any(|(name, value)| nul(name) || nul(value)) {
            return Err(invalid("the environment holds a NUL byte; remove it"));
        }
        let binds = self
            .read_only
            .iter()
            .flat_map(|bind| [&bind.source, &bind.target]);
        let trees = self.trees.iter().map(|tree| &tree.target);
        let files = self.files.iter().map(|file| &file.path);
        let own = [&self.cwd, &self.home].into_iter();
        for path in binds
            .chain(trees)
            .chain(files)
            .chain(own)
            .chain(&self.masked)
            .chain(&self.private)
        {
            check_path(path)?;
        }
        for tree in &self.trees {
            let mut parts = Path::new(&tree.name).components();
            if !matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            ) {
                return Err(invalid(format!(
                    "the tree name `{}` is not one plain directory name",
                    tree.name
                )));
            }
            if tree.target == Path::new("/") {
                return Err(invalid(
                    "a tree cannot replace `/`; choose a directory below it",
                ));
            }
        }
        for (index, tree) in self.trees.iter().enumerate() {
            let earlier = self.trees.iter().take(index);
            if earlier.clone().any(|other| other.target == tree.target) {
                return Err(invalid(format!(
                    "two trees have the same target `{}`",
                    tree.target.display()
                )));
            }
        }
        for reserved in ["/", "/proc", "/dev", "/sys"] {
            if self.home == Path::new(reserved) {
                return Err(invalid(format!(
                    "the home directory cannot be `{reserved}`"
                )));
            }
        }
        Ok(())
    }
}

/// One host path shown read-only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bind {
    /// On the host.
    #[serde(with = "lossless::path")]
    pub source: PathBuf,
    /// In the agent's view.
    #[serde(with = "lossless::path")]
    pub target: PathBuf,
    /// Leave it out when the host does not have it; otherwise that is an error.
    pub optional: bool,
}

impl Bind {
    /// A path that must exist, shown where it is.
    pub fn same(path: impl Into<PathBuf>) -> Self {
        let source = path.into();
        Self {
            target: source.clone(),
            source,
            optional: false,
        }
    }

    /// A path shown where it is, if the host has it.
    pub fn if_present(path: impl Into<PathBuf>) -> Self {
        Self {
            optional: true,
            ..Self::same(path)
        }
    }
}

/// One copy-on-write tree: `<fuse root>/<name>` appears at `target`, writable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Directory in the root of the FUSE file system.
    pub name: String,
    /// In the agent's view.
    #[serde(with = "lossless::path")]
    pub target: PathBuf,
}

/// A file made for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyntheticFile {
    /// In the agent's view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// Its content.
    #[serde(with = "lossless::bytes")]
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Whether the agent may change it. A writable file must lie in a private directory.
    pub writable: bool,
}

impl SyntheticFile {
    /// A file that everybody may read and nobody may change, such as `/etc/resolv.conf`.
    pub fn read_only(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            content: content.into(),
            mode: 0o444,
            writable: false,
        }
    }

    /// A file that the private home starts with and the agent may change.
    pub fn seed(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            content: content.into(),
            mode: 0o600,
            writable: true,
        }
    }
}

/// The agent's environment: what the host's says about terminal, language and user, what
/// `allowed` names (a trailing `*` stands for any ending), and `set`, which always wins.
pub fn environment(
    host: impl IntoIterator<Item = (OsString, OsString)>,
    allowed: &[String],
    home: &Path,
    set: impl IntoIterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let keep = |name: &OsStr| {
        let Some(name) = name.to_str() else {
            return false;
        };
        KEPT_VARIABLES
            .iter()
            .copied()
            .chain(allowed.iter().map(String::as_str))
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            })
    };
    let mut env: BTreeMap<_, _> = host.into_iter().filter(|(name, _)| keep(name)).collect();
    env.entry("PATH".into())
        .or_insert_with(|| DEFAULT_PATH.into());
    env.insert("HOME".into(), home.as_os_str().to_owned());
    env.insert("TMPDIR".into(), "/tmp".into());
    env.extend(set);
    env
}

/// Where programs are looked for when the host's environment does not say.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Kept because programs draw, sort, name and find things by them; none of them carries a secret or
/// names a socket of the host.
const KEPT_VARIABLES: &[&str] = &[
    "PATH",
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "LINES",
    "COLUMNS",
    "CI",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "NVM_DIR",
    "VOLTA_HOME",
    "JAVA_HOME",
    "GOROOT",
    "DENO_INSTALL",
    "BUN_INSTALL",
];

/// Readable by root only on a sound host; masked all the same, because a host may not be sound.
const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_dsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/letsencrypt",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/docker",
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
];

/// The system as programs expect it. Never `/run`, `/var/run` or `/tmp`: a unix socket on a
/// read-only bind can still be connected to. `/var/lib/dpkg` lets package queries work.
fn system_binds() -> Vec<Bind> {
    [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc",
        "/opt",
        "/nix/store",
        "/var/lib/dpkg",
        "/sys/devices/system/cpu",
        "/sys/devices/system/node",
    ]
    .into_iter()
    .map(Bind::if_present)
    .collect()
}

fn check_path(path: &Path) -> Result<(), SandboxError> {
    let sound = path.is_absolute()
        && !path.as_os_str().as_encoded_bytes().contains(&0)
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if sound {
        return Ok(());
    }
    Err(invalid(format!(
        "the path `{}` is not absolute and free of `..`",
        path.display()
    )))
}

fn invalid(message: impl Into<String>) -> SandboxError {
    SandboxError::Plan {
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn plan(command: &[&str]) -> Plan {
        let command = command.iter().map(OsString::from).collect();
        Plan::new(command, "/work".into(), "/home/u".into())
    }

    #[test]
    fn environment_keeps_the_named_and_drops_the_rest() {
        let host = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("HOME", "/root"),
            ("CODEX_HOME", "/c"),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let env = environment(
            host,
            &["CODEX_*".to_owned()],
            Path::new("/home/u"),
            [("PATH".into(), "/usr/bin".into())],
        );
        let seen: Vec<_> = env
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(
            seen,
            [
                "CODEX_HOME=/c",
                "HOME=/home/u",
                "LC_ALL=C",
                "PATH=/usr/bin",
                "TMPDIR=/tmp"
            ]
        );
    }

    #[test]
    fn what_cannot_be_built_is_refused_with_its_reason() {
        let check = |plan: Plan, expect: &str| {
            let error = plan.check().expect_err(expect).to_string();
            assert!(error.contains(expect), "`{error}` does not say `{expect}`");
        };
        check(plan(&[]), "no command");
        check(
            Plan {
                cwd: "relative".into(),
                ..plan(&["sh"])
            },
            "`relative`",
        );
        check(
            Plan {
                home: "/a/../b".into(),
                ..plan(&["sh"])
            },
            "`/a/../b`",
        );
        check(
            Plan {
                home: "/".into(),
                ..plan(&["sh"])
            },
            "home",
        );
        let tree = |name: &str, target: &str| Tree {
            name: name.into(),
            target: target.into(),
        };
        check(
            Plan {
                trees: vec![tree("a/b", "/w")],
                ..plan(&["sh"])
            },
            "`a/b`",
        );
        check(
            Plan {
                trees: vec![tree("..", "/w")],
                ..plan(&["sh"])
            },
            "`..`",
        );
        check(
            Plan {
                trees: vec![tree("w", "/")],
                ..plan(&["sh"])
            },
            "cannot replace `/`",
        );
        check(
            Plan {
                trees: vec![tree("a", "/w"), tree("b", "/w")],
                ..plan(&["sh"])
            },
            "same",
        );
        plan(&["sh"]).check().expect("a plain plan is sound");
    }

    #[test]
    fn a_plan_survives_being_written_whatever_bytes_it_holds() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'/', 0x80]);
        let mut plan = plan(&["sh"]);
        plan.command.push(odd.clone());
        plan.env.insert("ODD".into(), odd.clone());
        plan.masked.push(PathBuf::from(odd));
        plan.files
            .push(SyntheticFile::read_only("/etc/x", vec![0, 255, 10]));
        let written = serde_json::to_vec(&plan).expect("a plan can be written");
        let read: Plan = serde_json::from_slice(&written).expect("and read");
        assert_eq!(read, plan);
    }
}
