//! The file tree that the agent sees: an empty root, and in it only what the plan names.
//!
//! The new root is mounted over `/` while this process still stands in the old one. Sources are
//! resolved below the old root and targets below the new one, each by descriptor, so no symbolic
//! link of one leads into the other.

mod files;
mod mounts;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};

use self::files::Files;
use self::mounts::{
    attach_to, clone, clone_at, file_system, is_directory, make_file, move_onto, open_in,
    open_path, set_read_only, tmpfs,
};
use crate::SandboxError;
use crate::doctor::CheckName;
use crate::error::During;
use crate::identity::Identity;
use crate::plan::{Bind, Plan};

/// A mounted but not yet served FUSE file system.
pub(crate) struct FuseMount {
    pub(crate) device: OwnedFd,
    pub(crate) mount: OwnedFd,
}

/// `/proc` of this pid namespace, not yet anywhere in the tree.
pub(crate) fn mount_proc() -> Result<OwnedFd, SandboxError> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    file_system("proc", &[], flags).map_err(|error| SandboxError::Host {
        check: CheckName::ProcMount.missing(format!("/proc cannot be mounted: {error}")),
    })
}

/// Mounts FUSE in N0; the monitor serves it through `device`.
pub(crate) fn mount_fuse(identity: Identity) -> Result<FuseMount, SandboxError> {
    let host = |found: String| SandboxError::Host {
        check: CheckName::Fuse.missing(found),
    };
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| host(format!("/dev/fuse cannot be opened: {error}")))?;
    let (uid, gid) = identity.inside();
    let number = std::os::fd::AsRawFd::as_raw_fd(&device).to_string();
    let (uid, gid) = (uid.to_string(), gid.to_string());
    let options = [
        ("source", Some("kairos")),
        ("fd", Some(number.as_str())),
        ("rootmode", Some("40000")),
        ("user_id", Some(uid.as_str())),
        ("group_id", Some(gid.as_str())),
        ("allow_other", None),
        ("default_permissions", None),
    ];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = file_system("fuse", &options, flags)
        .map_err(|error| host(format!("FUSE cannot be mounted: {error}")))?;
    Ok(FuseMount { device, mount })
}

/// Begins the view: everything that is neither a tree nor below one. The trees need not be served yet.
pub(crate) fn begin(
    plan: &Plan,
    identity: Identity,
    proc_mount: &OwnedFd,
) -> Result<View, SandboxError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).during("separate the mounts from the host's")?;
    let host = open_path(CWD, Path::new("/")).during("open the host's root")?;
    let root = tmpfs(0o755, None).during("make an empty root")?;
    move_onto(&root, CWD, Path::new("/")).during("mount the empty root")?;
    let holder = tmpfs(0o755, None).during("make a place for synthetic files")?;
    let dev = tmpfs(0o755, Some(1 << 20)).during("make /dev")?;
    let view = View {
        host,
        root,
        holder,
        dev,
        held: Cell::new(0),
        identity,
        bytes_max: plan.private_bytes_max,
    };
    view.park().during("make a place for synthetic files")?;
    for (target, piece) in pieces(plan) {
        let place = || format!("place `{}`", target.display());
        match piece {
            Piece::Proc => view.attach(proc_mount, target, true).during_with(place)?,
            _ if in_or_below_a_tree(plan, target) => {}
            _ => view.place(target, piece)?,
        }
    }
    for path in ["/var/log", "/var/cache", "/var/lib", "/sys", "/mnt", "/srv"] {
        let _ = view.directory(Path::new(path));
    }
    let _ = rustix::fs::symlinkat("/run", &view.root, "var/run");
    view.cover(plan, |path| !in_or_below_a_tree(plan, path))?;
    if !plan.nested_namespaces {
        // With these masks no nested sandbox could mount a /proc of its own.
        for path in PROC_MASKED {
            view.mask(Path::new(path))?;
        }
    }
    Ok(view)
}

/// A view that is being built.
pub(crate) struct View {
    host: OwnedFd,
    root: OwnedFd,
    /// Synthetic files are cloned from here.
    holder: OwnedFd,
    dev: OwnedFd,
    /// How many files are in the holder.
    held: Cell<u32>,
    identity: Identity,
    bytes_max: Option<u64>,
}

/// One thing to place; the order of variants decides at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Piece<'a> {
    Bind(&'a Bind),
    Private(u32),
    Tree(&'a str),
    Proc,
    Dev,
}

impl View {
    /// Places the trees and what is below them, and makes the view this process's root. The old root is
    /// gone afterwards.
    pub(crate) fn finish(
        self,
        plan: &Plan,
        fuse_mount: Option<OwnedFd>,
        terminal: Option<&OwnedFd>,
    ) -> Result<(), SandboxError> {
        if let Some(terminal) = terminal {
            self.console(terminal);
        }
        set_read_only(&self.dev, false).during("make /dev")?;
        if let Some(fuse) = &fuse_mount {
            self.directory(Path::new(FUSE_PARKED))
                .during("make a place for the trees")?;
            move_onto(fuse, &self.root, Path::new(FUSE_PARKED)).during("attach the trees")?;
        }
        for (target, piece) in pieces(plan) {
            match piece {
                Piece::Tree(name) => self.tree(target, name, fuse_mount.as_ref())?,
                _ if in_or_below_a_tree(plan, target) => self.place(target, piece)?,
                _ => {}
            }
        }
        self.cover(plan, |path| in_or_below_a_tree(plan, path))?;
        self.unpark(PARKED).during("detach the synthetic files")?;
        // In a tree, a missing directory is the principal's to make: to make it is an effect.
        if !in_tree(plan, &plan.cwd) {
            self.directory(&plan.cwd)
                .during_with(|| format!("make the working directory `{}`", plan.cwd.display()))?;
        }
        if fuse_mount.is_some() {
            self.unpark(FUSE_PARKED).during("hide the mount of trees")?;
        }
        set_read_only(&self.root, false).during("make the root read-only")?;

        let step = "leave the host's root";
        rustix::process::fchdir(&self.root).during(step)?;
        rustix::process::pivot_root(".", ".").during(step)?;
        rustix::process::fchdir(&self.host).during(step)?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).during(step)?;
        rustix::process::chdir("/").during(step)
    }

    fn place(&self, target: &Path, piece: Piece<'_>) -> Result<(), SandboxError> {
        match piece {
            Piece::Bind(bind) => self.bind(bind),
            Piece::Private(mode) => {
                let mount = tmpfs(mode, self.bytes_max).during("make a private directory")?;
                self.attach(&mount, target, true)
                    .during_with(|| format!("make `{}`", target.display()))
            }
            Piece::Dev => self.devices(),
            // Each has its own time.
            Piece::Proc | Piece::Tree(_) => Ok(()),
        }
    }

    fn tree(
        &self,
        target: &Path,
        name: &str,
        fuse_mount: Option<&OwnedFd>,
    ) -> Result<(), SandboxError> {
        let fuse = fuse_mount
            .ok_or_else(|| SandboxError::step("place a tree", "no FUSE file system is mounted"))?;
        let tree =
            clone_at(fuse, Path::new(name)).during_with(|| format!("reach the tree `{name}`"))?;
        self.attach(&tree, target, true)
            .during_with(|| format!("place a tree at `{}`", target.display()))
    }

    /// Puts masks and synthetic files over what is there, where `now` says so.
    fn cover(&self, plan: &Plan, now: impl Fn(&Path) -> bool) -> Result<(), SandboxError> {
        for path in plan.masked.iter().filter(|path| now(path)) {
            self.mask(path)?;
        }
        let mut files = Files::new(self);
        // A tree shows the real home with what the principal has there; it needs no seed.
        for file in plan
            .files
            .iter()
            .filter(|file| now(&file.path) && !(file.writable && in_tree(plan, &file.path)))
        {
            files.place(file)?;
        }
        files.finish()
    }

    fn bind(&self, bind: &Bind) -> Result<(), SandboxError> {
        let step = || format!("show `{}` to the agent", bind.source.display());
        if let Some(link) = self.top_level_link(bind) {
            let name = bind.target.strip_prefix("/").unwrap_or(&bind.target);
            return rustix::fs::symlinkat(link, &self.root, name).during_with(step);
        }
        let source = match open_in(&self.host, &bind.source, OFlags::PATH) {
            Err(Errno::NOENT | Errno::NOTDIR) if bind.optional => return Ok(()),
            Err(Errno::ACCESS) if bind.optional => return Ok(()),
            other => other.during_with(step)?,
        };
        let directory = is_directory(&source).during_with(step)?;
        let tree = clone(&source).during_with(step)?;
        set_read_only(&tree, true).during_with(step)?;
        self.attach(&tree, &bind.target, directory)
            .during_with(step)
    }

    /// `/bin -> usr/bin` stays a link.
    fn top_level_link(&self, bind: &Bind) -> Option<std::ffi::CString> {
        let same = bind.source == bind.target && bind.source.parent() == Some(Path::new("/"));
        let name = bind.source.strip_prefix("/").ok()?;
        same.then(|| rustix::fs::readlinkat(&self.host, name, Vec::new()).ok())
            .flatten()
    }

    /// The few devices that programs expect, and a terminal file system of its own.
    fn devices(&self) -> Result<(), SandboxError> {
        let step = "make /dev";
        self.attach(&self.dev, Path::new("/dev"), true)
            .during(step)?;
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let source = open_in(&self.host, &Path::new("/dev").join(name), OFlags::PATH)
                .during_with(|| format!("find the host's /dev/{name}"))?;
            let device = clone(&source).during(step)?;
            self.attach(&device, &Path::new("/dev").join(name), false)
                .during(step)?;
        }
        for (name, target) in DEVICE_LINKS {
            rustix::fs::symlinkat(*target, &self.dev, *name).during(step)?;
        }
        let mut options = vec![("ptmxmode", Some("0666")), ("mode", Some("0620"))];
        if self.identity == Identity::Shifted {
            options.push(("gid", Some("5")));
        }
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = file_system("devpts", &options, flags).during("make /dev/pts")?;
        self.attach(&terminals, Path::new("/dev/pts"), true)
            .during(step)?;
        let shared = tmpfs(0o1777, self.bytes_max).during(step)?;
        self.attach(&shared, Path::new("/dev/shm"), true)
            .during(step)
    }

    /// The agent's terminal belongs to the host's terminal file system, where `ttyname` cannot
    /// find it; as `/dev/console` it can. Without it, programs do not learn a name, that is all.
    fn console(&self, terminal: &OwnedFd) -> Option<()> {
        let link = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(terminal)
        );
        let path = std::fs::read_link(link).ok()?;
        let source = open_in(&self.host, &path, OFlags::PATH).ok()?;
        let (ours, theirs) = (
            rustix::fs::fstat(&source).ok()?,
            rustix::fs::fstat(terminal).ok()?,
        );
        if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino) {
            return None;
        }
        self.attach(&clone(&source).ok()?, Path::new("/dev/console"), false)
            .ok()
    }

    /// Puts something empty over the path, if it is there.
    fn mask(&self, path: &Path) -> Result<(), SandboxError> {
        let step = || format!("hide `{}`", path.display());
        let target = match self.locate(path) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(SandboxError::step(step(), error)),
        };
        let cover = if is_directory(&target).during_with(step)? {
            "nothing"
        } else {
            "empty"
        };
        let cover = clone_at(&self.holder, Path::new(cover)).during_with(step)?;
        set_read_only(&cover, false).during_with(step)?;
        attach_to(&cover, &target).during_with(step)
    }

    /// Makes what masks and synthetic files are cloned from: a mount can only be cloned from
    /// where it is attached.
    fn park(&self) -> rustix::io::Result<()> {
        self.directory(Path::new(PARKED))?;
        move_onto(&self.holder, &self.root, Path::new(PARKED))?;
        make_file(&self.holder, OsStr::new("empty"), 0o444, &[])?;
        rustix::fs::mkdirat(&self.holder, "nothing", Mode::from_raw_mode(0o555))
    }

    /// Detaches what is parked there and removes the place.
    fn unpark(&self, place: &str) -> rustix::io::Result<()> {
        let parked = self.locate(Path::new(place))?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&parked));
        rustix::mount::unmount(path, UnmountFlags::DETACH)?;
        drop(parked);
        rustix::fs::unlinkat(
            &self.root,
            place.trim_start_matches('/'),
            AtFlags::REMOVEDIR,
        )
    }

    fn locate(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        open_in(&self.root, path, OFlags::PATH)
    }

    /// Makes the mount point if need be and attaches the mount there.
    fn attach(&self, mount: &OwnedFd, target: &Path, directory: bool) -> rustix::io::Result<()> {
        let target = match self.locate(target) {
            Ok(target) => target,
            Err(Errno::NOENT) if directory => self.directory(target)?,
            Err(Errno::NOENT) => self.file(target)?,
            Err(error) => return Err(error),
        };
        attach_to(mount, &target)
    }

    /// The directory, made with its parents if need be.
    fn directory(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut current = self.locate(Path::new("/"))?;
        let mut so_far = PathBuf::from("/");
        for part in path.components().skip(1) {
            so_far.push(part);
            current = match self.locate(&so_far) {
                Err(Errno::NOENT) => {
                    let name: &Path = part.as_ref();
                    rustix::fs::mkdirat(&current, name, Mode::from_raw_mode(0o755))?;
                    self.locate(&so_far)?
                }
                other => other?,
            };
        }
        Ok(current)
    }

    fn file(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let parent = self.directory(path.parent().unwrap_or(Path::new("/")))?;
        make_file(&parent, path.file_name().unwrap_or_default(), 0o444, &[])?;
        self.locate(path)
    }
}

/// Parents before what lies in them.
fn pieces(plan: &Plan) -> Vec<(&Path, Piece<'_>)> {
    let mut pieces = vec![
        (Path::new("/proc"), Piece::Proc),
        (Path::new("/dev"), Piece::Dev),
        (Path::new("/tmp"), Piece::Private(0o1777)),
        (Path::new("/var/tmp"), Piece::Private(0o1777)),
        (Path::new("/run"), Piece::Private(0o755)),
        (plan.home.as_path(), Piece::Private(0o700)),
    ];
    pieces.extend(
        plan.private
            .iter()
            .map(|path| (path.as_path(), Piece::Private(0o700))),
    );
    pieces.extend(
        plan.read_only
            .iter()
            .map(|bind| (bind.target.as_path(), Piece::Bind(bind))),
    );
    pieces.extend(
        plan.trees
            .iter()
            .map(|tree| (tree.target.as_path(), Piece::Tree(tree.name.as_str()))),
    );
    pieces.sort();
    // At one path the later kind wins, so that home as a workspace is the workspace.
    let mut kept: Vec<(&Path, Piece<'_>)> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match kept.last_mut() {
            Some(last) if last.0 == piece.0 => *last = piece,
            _ => kept.push(piece),
        }
    }
    kept
}

/// Whether the path's content comes from a tree: the deepest place around it decides.
fn in_tree(plan: &Plan, path: &Path) -> bool {
    let pieces = pieces(plan);
    let around = pieces.iter().filter(|(target, _)| path.starts_with(target));
    let deepest = around.max_by_key(|(target, _)| target.components().count());
    matches!(deepest, Some((_, Piece::Tree(_))))
}

/// Whether a place waits for the trees.
fn in_or_below_a_tree(plan: &Plan, path: &Path) -> bool {
    let mut trees = plan.trees.iter();
    trees.any(|tree| path.starts_with(&tree.target))
}

/// Where mounts wait while parts of them are cloned; detached before the agent starts.
const PARKED: &str = "/.kairos";
const FUSE_PARKED: &str = "/.kairos-trees";

const DEVICE_LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

const PROC_MASKED: &[&str] = &[
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/kallsyms",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/irq",
    "/proc/bus",
];
