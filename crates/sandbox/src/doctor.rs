//! What this host can do: each ability is tried, in a child, not guessed from version numbers.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::SandboxError;
use crate::control::{Control, Reply};
use crate::identity::Identity;
use crate::prepare::Launcher;
use crate::{child, network, view};

/// Tries everything that [`crate::prepare`] needs.
pub fn doctor() -> Vec<Check> {
    doctor_with(&Launcher::default())
}

/// As [`doctor`], with another program for the children.
pub fn doctor_with(launcher: &Launcher) -> Vec<Check> {
    let mut checks = match crate::prepare::probe(launcher) {
        Ok(checks) => checks,
        Err(SandboxError::Host { check }) => vec![check],
        Err(error) => vec![CheckName::UserNamespaces.missing(error.to_string())],
    };
    checks.push(landlock());
    checks.push(seccomp());
    checks.push(core_helper());
    checks.push(cgroups());
    checks
}

/// One ability of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Which one.
    pub name: CheckName,
    /// Whether it is there.
    pub status: CheckStatus,
    /// What was seen.
    pub found: String,
    /// What to do about it; empty when nothing is.
    pub remedy: String,
}

/// Whether an ability is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// It works.
    Ok,
    /// Kairos runs without it, with less behind it.
    Warn,
    /// Kairos does not run without it.
    Missing,
}

/// The abilities, in the order in which they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are what is shown")]
pub enum CheckName {
    Ids,
    UserNamespaces,
    OtherNamespaces,
    ProcMount,
    Mounts,
    Fuse,
    Network,
    Capture,
    Landlock,
    Seccomp,
    CoreDumps,
    Cgroups,
}

impl std::fmt::Display for CheckName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ids => "ids of root's agent",
            Self::UserNamespaces => "user namespaces",
            Self::OtherNamespaces => "other namespaces",
            Self::ProcMount => "/proc in a namespace",
            Self::Mounts => "mounts in a namespace",
            Self::Fuse => "FUSE",
            Self::Network => "network namespace",
            Self::Capture => "network capture",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
            Self::CoreDumps => "core dumps",
            Self::Cgroups => "cgroup v2",
        })
    }
}

impl CheckName {
    pub(crate) fn ok(self, found: impl Into<String>) -> Check {
        let (status, remedy) = (CheckStatus::Ok, String::new());
        Check {
            name: self,
            status,
            found: found.into(),
            remedy,
        }
    }

    pub(crate) fn warn(self, found: impl Into<String>) -> Check {
        Check {
            name: self,
            status: CheckStatus::Warn,
            found: found.into(),
            remedy: self.remedy(),
        }
    }

    pub(crate) fn missing(self, found: impl Into<String>) -> Check {
        let status = CheckStatus::Missing;
        Check {
            name: self,
            status,
            found: found.into(),
            remedy: self.remedy(),
        }
    }

    /// The exact thing to do, by what this host looks like.
    fn remedy(self) -> String {
        match self {
            Self::Ids => "Run Kairos as an ordinary user. To run it as root, root needs every user id \
                and the capabilities SETUID, SETGID and SETFCAP (Docker: `--cap-add SETUID --cap-add \
                SETGID --cap-add SETFCAP`), because an agent with root's own id could change kernel \
                settings."
                .to_owned(),
            Self::UserNamespaces => user_namespace_remedy(),
            Self::OtherNamespaces => limit_remedy(&[
                "user.max_mnt_namespaces",
                "user.max_pid_namespaces",
                "user.max_net_namespaces",
                "user.max_ipc_namespaces",
                "user.max_uts_namespaces",
                "user.max_cgroup_namespaces",
            ]),
            Self::ProcMount => "This looks like a container that hides parts of /proc. Start it \
                with `--security-opt systempaths=unconfined` (Docker), `--security-opt unmask=ALL` \
                (Podman) or `procMount: Unmasked` (Kubernetes)."
                .to_owned(),
            Self::Mounts => "Linux 5.12 or newer is needed; in a container, also a seccomp profile \
                that allows mount calls: `--security-opt seccomp=unconfined`."
                .to_owned(),
            Self::Fuse => fuse_remedy(),
            Self::Network => "Allow network namespaces: `sudo sysctl user.max_net_namespaces=10000`."
                .to_owned(),
            Self::Capture => "Load the kernel modules once: `sudo modprobe -a nf_tables nft_tproxy \
                nf_tproxy_ipv4 nf_tproxy_ipv6`, and at each boot: `printf 'nf_tables\\nnft_tproxy\\n' \
                | sudo tee /etc/modules-load.d/kairos.conf`. Without them only well-known ports are \
                captured and all others refuse connections."
                .to_owned(),
            Self::Landlock => "Boot a kernel with Landlock, 6.12 or newer for its scopes, and \
                `landlock` in the `lsm=` list. The namespaces hold without it."
                .to_owned(),
            Self::Seccomp => "Boot a kernel with CONFIG_SECCOMP_FILTER.".to_owned(),
            Self::CoreDumps => "Nothing must be done: the agent's core dumps are turned off."
                .to_owned(),
            Self::Cgroups => "Limits on memory are not available here; boot with \
                `systemd.unified_cgroup_hierarchy=1` for them. The boundary holds without them."
                .to_owned(),
        }
    }
}

/// Runs in the outer process: enters what a real run enters and tries each step there.
pub(crate) fn probe(control: &Control, identity: Identity) -> Result<(), SandboxError> {
    child::enter_outer_namespaces(control, identity)?;
    let mut checks = vec![
        CheckName::UserNamespaces.ok(match identity {
            Identity::Shifted => "as root, mapped to ids that own nothing".to_owned(),
            Identity::Same { uid, .. } => format!("as user {uid}, without root"),
        }),
        CheckName::OtherNamespaces.ok("mount, pid, net, ipc, uts, cgroup"),
    ];
    checks.push(match view::mount_fuse(identity) {
        Ok(_) => CheckName::Fuse.ok("/dev/fuse opened and mounted"),
        Err(SandboxError::Host { check }) => check,
        Err(error) => CheckName::Fuse.missing(error.to_string()),
    });
    match network::set_up() {
        Ok(capture) => {
            checks.push(CheckName::Network.ok("loopback only, every address local"));
            checks.push(match capture.complete {
                true => CheckName::Capture.ok("nftables hands over every TCP connection"),
                false => CheckName::Capture.warn(capture.notes.join("; ")),
            });
        }
        Err(error) => checks.push(CheckName::Network.missing(error.to_string())),
    }
    // A new pid namespace holds for children only, and /proc and the view belong to it.
    let (ours, theirs) = Control::pair().map_err(|error| SandboxError::step("probe", error))?;
    match crate::sys::fork().map_err(|error| SandboxError::step("probe", error))? {
        crate::sys::Fork::Child => {
            drop(ours);
            let _ = Control::from_fd(theirs).send(&Reply::Probed(probe_mounts(identity)), &[]);
            std::process::exit(0)
        }
        crate::sys::Fork::Parent(_) => drop(theirs),
    }
    match ours.receive() {
        Ok(Some((Reply::Probed(found), _))) => checks.extend(found),
        _ => checks.push(CheckName::Mounts.missing("the probe ended early")),
    }
    control
        .send(&Reply::Probed(checks), &[])
        .map_err(|error| SandboxError::step("report the probe", error))
}

fn probe_mounts(identity: Identity) -> Vec<Check> {
    let proc_mount = match view::mount_proc() {
        Ok(proc_mount) => proc_mount,
        Err(SandboxError::Host { check }) => return vec![check],
        Err(error) => return vec![CheckName::ProcMount.missing(error.to_string())],
    };
    let plan = crate::Plan::new(vec!["true".into()], "/tmp".into(), "/home/kairos".into());
    let built = view::begin(&plan, identity, &proc_mount);
    let mounts = match built.and_then(|view| view.finish(&plan, None, None)) {
        Ok(()) => CheckName::Mounts.ok("read-only system, private /tmp, /run and home"),
        Err(error) => CheckName::Mounts.missing(error.to_string()),
    };
    vec![CheckName::ProcMount.ok("mounted"), mounts]
}

fn landlock() -> Check {
    use ::landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
    let scopes = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket)
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(|rules| rules.create());
    match scopes {
        Ok(_) => CheckName::Landlock.ok("scopes for sockets and signals"),
        Err(error) => CheckName::Landlock.warn(error.to_string()),
    }
}

fn seccomp() -> Check {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    match actions {
        Ok(actions) if actions.contains("errno") => CheckName::Seccomp.ok("filters"),
        Ok(actions) => CheckName::Seccomp.missing(format!("only {}", actions.trim())),
        Err(error) => CheckName::Seccomp.missing(error.to_string()),
    }
}

fn core_helper() -> Check {
    match std::fs::read_to_string("/proc/sys/kernel/core_pattern") {
        Ok(pattern) if pattern.starts_with('|') => {
            CheckName::CoreDumps.ok("the host has a helper; it never runs for the agent")
        }
        _ => CheckName::CoreDumps.ok("off for the agent"),
    }
}

fn cgroups() -> Check {
    match std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") {
        Ok(controllers) => CheckName::Cgroups.ok(controllers.trim().to_owned()),
        Err(_) => CheckName::Cgroups.warn("not mounted at /sys/fs/cgroup"),
    }
}

fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::read_to_string(path)
        .ok()
        .map(|value| value.trim().to_owned())
}

/// AppArmor lets an ordinary user make the namespace, then takes every right in it away.
pub(crate) fn namespace_check(otherwise: CheckName) -> CheckName {
    let name = "kernel.apparmor_restrict_unprivileged_userns";
    let ordinary = !rustix::process::geteuid().is_root();
    if ordinary && sysctl(name).as_deref() == Some("1") {
        return CheckName::UserNamespaces;
    }
    otherwise
}

fn user_namespace_remedy() -> String {
    let says = |name: &str, value: &str| sysctl(name).as_deref() == Some(value);
    if says("kernel.apparmor_restrict_unprivileged_userns", "1") {
        return "AppArmor forbids user namespaces to ordinary users here (Ubuntu 23.10 and later). \
            Allow them: `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, kept with \
            `echo kernel.apparmor_restrict_unprivileged_userns=0 | sudo tee \
            /etc/sysctl.d/60-kairos.conf`; or give only this program a profile with `userns,`: \
            `printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile kairos /**/kairos \
            flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee /etc/apparmor.d/kairos && sudo \
            apparmor_parser -r /etc/apparmor.d/kairos`."
            .to_owned();
    }
    if says("kernel.unprivileged_userns_clone", "0") {
        return "Allow user namespaces to ordinary users: `sudo sysctl -w \
            kernel.unprivileged_userns_clone=1`, kept with `echo kernel.unprivileged_userns_clone=1 \
            | sudo tee /etc/sysctl.d/60-kairos.conf`."
            .to_owned();
    }
    if says("user.max_user_namespaces", "0") {
        return "Allow user namespaces: `sudo sysctl -w user.max_user_namespaces=10000`, kept with \
            `echo user.max_user_namespaces=10000 | sudo tee /etc/sysctl.d/60-kairos.conf`."
            .to_owned();
    }
    if in_container() {
        return "This is a container that forbids user namespaces. Start it with `--security-opt \
            seccomp=unconfined --security-opt apparmor=unconfined --security-opt \
            systempaths=unconfined` (Docker) or `--security-opt seccomp=unconfined --security-opt \
            unmask=ALL` (Podman), or run Kairos on the host."
            .to_owned();
    }
    "A kernel with CONFIG_USER_NS is needed, and no security module that forbids it.".to_owned()
}

fn in_container() -> bool {
    let marks = ["/.dockerenv", "/run/.containerenv"];
    marks.iter().any(|mark| std::path::Path::new(mark).exists())
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

fn limit_remedy(names: &[&str]) -> String {
    let zero: Vec<_> = names
        .iter()
        .filter(|name| sysctl(name).as_deref() == Some("0"))
        .collect();
    if zero.is_empty() {
        return "A kernel with mount, pid, network, ipc, uts and cgroup namespaces is needed."
            .to_owned();
    }
    let settings: Vec<_> = zero.iter().map(|name| format!("{name}=10000")).collect();
    format!("Raise the limits: `sudo sysctl -w {}`.", settings.join(" "))
}

fn fuse_remedy() -> String {
    match rustix::fs::open(
        "/dev/fuse",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) {
        Err(Errno::ACCESS | Errno::PERM) => "Let ordinary users open the device: `sudo chmod 0666 \
            /dev/fuse`, kept with `echo 'KERNEL==\"fuse\", MODE=\"0666\"' | sudo tee \
            /etc/udev/rules.d/60-kairos-fuse.rules`."
            .to_owned(),
        Err(Errno::NOENT | Errno::NODEV) if in_container() => {
            "Start the container with `--device /dev/fuse`.".to_owned()
        }
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            "Load FUSE: `sudo modprobe fuse`.".to_owned()
        }
        _ => "A kernel that lets user namespaces mount FUSE is needed (4.18 or newer).".to_owned(),
    }
}
