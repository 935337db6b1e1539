//! The file tree that the agent sees: an empty root, and in it only what the plan names.
//!
//! The new root is mounted over `/` while this process still stands in the old one. Sources are
//! resolved below the old root and targets below the new one, each by descriptor, so no symbolic
//! link of one leads into the other.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use crate::SandboxError;
use crate::doctor::CheckName;
use crate::error::During;
use crate::identity::Identity;
use crate::plan::{Bind, Plan, SyntheticFile};
use crate::sys;

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

/// Builds the view and makes it this process's root. The old root is gone afterwards.
pub(crate) fn build(
    plan: &Plan,
    identity: Identity,
    proc_mount: &OwnedFd,
    fuse_mount: Option<OwnedFd>,
) -> Result<(), SandboxError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).during("separate the mounts from the host's")?;
    let host = open_path(CWD, Path::new("/")).during("open the host's root")?;
    let root = tmpfs(0o755, None).during("make an empty root")?;
    move_onto(&root, CWD, Path::new("/")).during("mount the empty root")?;
    let view = View {
        host,
        root,
        identity,
        bytes_max: plan.private_bytes_max,
    };

    view.populate(plan, proc_mount, fuse_mount)?;

    let step = "leave the host's root";
    rustix::process::fchdir(&view.root).during(step)?;
    rustix::process::pivot_root(".", ".").during(step)?;
    rustix::process::fchdir(&view.host).during(step)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).during(step)?;
    rustix::process::chdir("/").during(step)
}

struct View {
    host: OwnedFd,
    root: OwnedFd,
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
    fn populate(
        &self,
        plan: &Plan,
        proc_mount: &OwnedFd,
        fuse_mount: Option<OwnedFd>,
    ) -> Result<(), SandboxError> {
        if let Some(fuse) = &fuse_mount {
            self.directory(Path::new(FUSE_PARKED))
                .during("make a place for the trees")?;
            move_onto(fuse, &self.root, Path::new(FUSE_PARKED)).during("attach the trees")?;
        }
        for (target, piece) in pieces(plan) {
            let place = |verb: &str| format!("{verb} `{}`", target.display());
            match piece {
                Piece::Bind(bind) => self.bind(bind)?,
                Piece::Private(mode) => {
                    let mount = tmpfs(mode, self.bytes_max).during("make a private directory")?;
                    self.attach(&mount, target, true)
                        .during_with(|| place("make"))?;
                }
                Piece::Tree(name) => {
                    let fuse = fuse_mount.as_ref().ok_or_else(|| {
                        SandboxError::step("place a tree", "no FUSE file system is mounted")
                    })?;
                    let tree = clone_at(fuse, Path::new(name))
                        .during_with(|| format!("reach the tree `{name}`"))?;
                    self.attach(&tree, target, true)
                        .during_with(|| place("place a tree at"))?;
                }
                Piece::Proc => {
                    self.attach(proc_mount, target, true)
                        .during_with(|| place("place"))?;
                }
                Piece::Dev => self.devices()?,
            }
        }
        for path in ["/var/log", "/var/cache", "/var/lib", "/sys", "/mnt", "/srv"] {
            let _ = self.directory(Path::new(path));
        }
        let _ = rustix::fs::symlinkat("/run", &self.root, "var/run");
        for path in &plan.masked {
            self.mask(path)?;
        }
        if !plan.nested_namespaces {
            // With these masks no nested sandbox could mount a /proc of its own.
            for path in PROC_MASKED {
                self.mask(Path::new(path))?;
            }
        }
        let files = Files::new(self)?;
        for file in &plan.files {
            files.place(file)?;
        }
        drop(files);
        self.directory(plan.cwd.as_path())
            .during_with(|| format!("make the working directory `{}`", plan.cwd.display()))?;
        if fuse_mount.is_some() {
            let parked = self
                .locate(Path::new(FUSE_PARKED))
                .during("hide the mount of trees")?;
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&parked));
            rustix::mount::unmount(path, UnmountFlags::DETACH).during("hide the mount of trees")?;
        }
        drop(fuse_mount);
        set_read_only(&self.root, false).during("make the root read-only")
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
        let dev = tmpfs(0o755, Some(1 << 20)).during(step)?;
        self.attach(&dev, Path::new("/dev"), true).during(step)?;
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let source = open_in(&self.host, &Path::new("/dev").join(name), OFlags::PATH)
                .during_with(|| format!("find the host's /dev/{name}"))?;
            let device = clone(&source).during(step)?;
            self.attach(&device, &Path::new("/dev").join(name), false)
                .during(step)?;
        }
        for (name, target) in DEVICE_LINKS {
            rustix::fs::symlinkat(*target, &dev, *name).during(step)?;
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
            .during(step)?;
        set_read_only(&dev, false).during(step)
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
            tmpfs(0o555, Some(4096)).during_with(step)?
        } else {
            let holder = tmpfs(0o755, Some(4096)).during_with(step)?;
            // A mount can only be cloned from where it is attached.
            self.directory(Path::new(PARKED)).during_with(step)?;
            move_onto(&holder, &self.root, Path::new(PARKED)).during_with(step)?;
            make_file(&holder, OsStr::new("empty"), 0o444, &[]).during_with(step)?;
            let cover = clone_at(&holder, Path::new("empty")).during_with(step)?;
            self.unpark().during_with(step)?;
            cover
        };
        set_read_only(&cover, false).during_with(step)?;
        attach_to(&cover, &target).during_with(step)
    }

    fn unpark(&self) -> rustix::io::Result<()> {
        let parked = self.locate(Path::new(PARKED))?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&parked));
        rustix::mount::unmount(path, UnmountFlags::DETACH)
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

/// Synthetic files come from a small file system of their own, cloned file by file.
struct Files<'a> {
    view: &'a View,
    holder: OwnedFd,
}

impl<'a> Files<'a> {
    fn new(view: &'a View) -> Result<Self, SandboxError> {
        let step = "make a place for synthetic files";
        let holder = tmpfs(0o755, None).during(step)?;
        view.directory(Path::new(PARKED)).during(step)?;
        move_onto(&holder, &view.root, Path::new(PARKED)).during(step)?;
        Ok(Self { view, holder })
    }

    fn place(&self, file: &SyntheticFile) -> Result<(), SandboxError> {
        self.try_place(file)
            .during_with(|| format!("make the file `{}`", file.path.display()))
    }

    fn try_place(&self, file: &SyntheticFile) -> rustix::io::Result<()> {
        let mut path = file.path.clone();
        for _ in 0..LINKS_MAX {
            match self.view.locate(&path) {
                Ok(_) if file.writable => return self.overwrite(&path, file),
                Ok(existing) => return self.cover(file, &existing),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
            let parent_path = path.parent().unwrap_or(Path::new("/")).to_owned();
            let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
            let parent = self.view.directory(&parent_path)?;
            if let Ok(link) = rustix::fs::readlinkat(&parent, &name, Vec::new()) {
                let link: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(link.as_bytes());
                path = parent_path.join(link);
                continue;
            }
            return match make_file(&parent, &name, file.mode, &file.content) {
                Err(Errno::ROFS) if !file.writable => {
                    let parent = self.shadow(&parent_path)?;
                    make_file(&parent, &name, file.mode, &file.content)?;
                    set_read_only(&parent, false).map_err(raw)
                }
                other => other,
            };
        }
        Err(Errno::LOOP)
    }

    fn overwrite(&self, path: &Path, file: &SyntheticFile) -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::TRUNC;
        write_all(&open_in(&self.view.root, path, flags)?, &file.content)
    }

    /// Puts a read-only mount of just this file over what is there. The file keeps its name in
    /// the holder: the kernel attaches no mount whose root has none any more.
    fn cover(&self, file: &SyntheticFile, existing: &OwnedFd) -> rustix::io::Result<()> {
        let name: Vec<u8> = file.path.as_os_str().as_encoded_bytes().to_vec();
        let name: Vec<u8> = name.into_iter().map(|b| if b == b'/' { b'_' } else { b }).collect();
        let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&name);
        make_file(&self.holder, name, file.mode, &file.content)?;
        let cover = clone_at(&self.holder, Path::new(name))?;
        set_read_only(&cover, false).map_err(raw)?;
        attach_to(&cover, existing)
    }

    /// Replaces a read-only directory by a copy in which a file can be made: links are copied,
    /// everything else is mounted from where it was.
    fn shadow(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let original = open_in(&self.view.root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let copy = tmpfs(0o755, None)?;
        attach_to(&copy, &self.view.locate(path)?)?;
        for entry in rustix::fs::Dir::read_from(&original)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match entry.file_type() {
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&original, name, Vec::new())?;
                    rustix::fs::symlinkat(target, &copy, name)?;
                }
                FileType::Directory => {
                    let tree = clone_at_name(&original, name)?;
                    rustix::fs::mkdirat(&copy, name, Mode::from_raw_mode(0o755))?;
                    move_to_name(&tree, &copy, name)?;
                }
                FileType::RegularFile => {
                    let tree = clone_at_name(&original, name)?;
                    let os_name = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
                    make_file(&copy, os_name, 0o444, &[])?;
                    move_to_name(&tree, &copy, name)?;
                }
                _ => {}
            }
        }
        Ok(copy)
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        let _ = self.view.unpark();
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

/// Where mounts wait while parts of them are cloned; detached before the agent starts.
const PARKED: &str = "/.kairos";
const FUSE_PARKED: &str = "/.kairos-trees";

const LINKS_MAX: usize = 8;

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

fn file_system(
    kind: &str,
    options: &[(&str, Option<&str>)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => rustix::mount::fsconfig_set_string(&context, *key, *value)?,
            None => rustix::mount::fsconfig_set_flag(&context, *key)?,
        }
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn tmpfs(mode: u32, bytes_max: Option<u64>) -> rustix::io::Result<OwnedFd> {
    let mode = format!("{mode:o}");
    let size = bytes_max.map(|size| size.to_string());
    let mut options = vec![("mode", Some(mode.as_str()))];
    if let Some(size) = &size {
        options.push(("size", Some(size)));
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    file_system("tmpfs", &options, flags)
}

fn set_read_only(mount: &OwnedFd, recursive: bool) -> std::io::Result<()> {
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::mount_setattr(mount, attributes, recursive)
}

fn raw(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn open_path(directory: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        directory,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Opens a path as if `root` were `/`.
fn open_in(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

fn is_directory(fd: &OwnedFd) -> rustix::io::Result<bool> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// A copy of the mount tree at a path, unattached.
fn clone(path: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(path, c"", flags)
}

fn clone_at(directory: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    clone(&open_path(directory.as_fd(), path)?)
}

fn clone_at_name(directory: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    clone(&rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

fn move_onto(mount: &OwnedFd, to: impl AsFd, path: &Path) -> rustix::io::Result<()> {
    let path = if path == Path::new("/") {
        path
    } else {
        path.strip_prefix("/").unwrap_or(path)
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", to, path, flags)
}

fn move_to_name(mount: &OwnedFd, to: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<()> {
    rustix::mount::move_mount(
        mount,
        c"",
        to,
        name,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

fn attach_to(mount: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", target, c"", flags)
}

fn make_file(
    directory: &OwnedFd,
    name: &OsStr,
    mode: u32,
    content: &[u8],
) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode))?;
    write_all(&file, content)
}

fn write_all(file: &OwnedFd, mut content: &[u8]) -> rustix::io::Result<()> {
    while !content.is_empty() {
        let written = rustix::io::write(file, content)?;
        content = content.get(written..).unwrap_or_default();
    }
    Ok(())
}
