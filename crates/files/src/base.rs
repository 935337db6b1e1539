//! The owner's directory as it is on the host. Read only, and never through a symbolic link:
//! directories are opened beneath the root, everything else by name within its directory.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

use crate::acl;
use crate::attr::{Kind, Version, Xattrs};
use crate::lift::Lifted;
use crate::path::{Rel, join, lies_at, split};

/// Directories kept open; the rest are opened again when needed.
const DIRS_OPEN_MAX: usize = 256;
/// So much of a path is given to the kernel at once, which takes less than 4096 bytes.
const PART_BYTES_MAX: usize = 4000;

/// The owner's directory.
#[derive(Debug)]
pub(crate) struct Base {
    root: Arc<OwnedFd>,
    path: PathBuf,
    dirs: Mutex<HashMap<Vec<u8>, Arc<OwnedFd>>>,
    /// Places inside that are the monitor's own: not shown, not changed.
    hidden: Vec<Rel>,
    /// Directories that are writable for the time of a commit.
    pub(crate) lifted: Lifted,
}

impl Base {
    /// Opens it. Directories of the monitor that lie in it (`own`) are not part of the tree.
    pub(crate) fn open(path: &Path, own: &[PathBuf]) -> Result<Self> {
        let root = rustix::fs::open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            root: Arc::new(root),
            path: path.to_path_buf(),
            dirs: Mutex::default(),
            hidden: hidden(path, own),
            lifted: Lifted::default(),
        })
    }

    /// Where it lies, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path is the monitor's own.
    pub(crate) fn hides(&self, path: &[u8]) -> bool {
        self.hidden.iter().any(|own| lies_at(path, own))
    }

    /// A descriptor of a directory, good as a starting point only (`O_PATH`).
    pub(crate) fn dir(&self, path: &[u8]) -> Result<Arc<OwnedFd>> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(fd) = self.dirs.lock().get(path) {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(self.dir_now(path)?);
        let mut dirs = self.dirs.lock();
        if dirs.len() >= DIRS_OPEN_MAX {
            dirs.clear();
        }
        dirs.insert(path.to_vec(), Arc::clone(&fd));
        Ok(fd)
    }

    /// The same, not from memory: what lies there at this moment.
    pub(crate) fn dir_now(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_beneath(path, flags)
    }

    /// Forgets open directories, because names on the host have changed.
    pub(crate) fn forget_dirs(&self) {
        self.dirs.lock().clear();
    }

    pub(crate) fn stat(&self, path: &[u8]) -> Result<Stat> {
        let stat = match split(path) {
            None => rustix::fs::fstat(&*self.root),
            Some((parent, name)) => {
                rustix::fs::statat(&*self.dir(parent)?, name, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        Ok(self.lifted.as_meant(stat?))
    }

    /// What lies at a path now; `None` when nothing does.
    pub(crate) fn version(&self, path: &[u8]) -> Result<Option<Version>> {
        let found = match split(path) {
            None => rustix::fs::fstat(&*self.root),
            Some((parent, name)) => self
                .dir_now(parent)
                .and_then(|dir| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)),
        };
        match found {
            Ok(stat) => {
                let mut version = Version::of(&self.lifted.as_meant(stat));
                if version.kind == Kind::Symlink {
                    version.target = Some(self.readlink(path)?);
                }
                Ok(Some(version))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading; nothing else is ever opened (a FIFO would wait, a device
    /// would act).
    pub(crate) fn open_file(&self, path: &[u8]) -> Result<(File, Stat)> {
        let (parent, name) = split(path).ok_or(Errno::ISDIR)?;
        let dir = self.dir(parent)?;
        let stat = rustix::fs::statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if Kind::of_mode(stat.st_mode) != Kind::File {
            return Err(Errno::INVAL);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*dir, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => rustix::fs::openat(&*dir, name, flags, Mode::empty())?,
            other => other?,
        };
        let stat = rustix::fs::fstat(&file)?;
        if Kind::of_mode(stat.st_mode) != Kind::File {
            return Err(Errno::INVAL);
        }
        Ok((File::from(file), stat))
    }

    pub(crate) fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        let (parent, name) = split(path).ok_or(Errno::INVAL)?;
        Ok(rustix::fs::readlinkat(&*self.dir(parent)?, name, Vec::new())?.into_bytes())
    }

    /// Names in a directory with their kinds (`None` where the file system does not tell).
    pub(crate) fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Option<Kind>)>> {
        let mut names = Vec::new();
        self.entries(path, |name, kind, _| names.push((name.to_vec(), kind)))?;
        Ok(names)
    }

    /// Tells names in a directory with their kinds and the numbers of their files, as the directory has
    /// them. Nothing is looked at but the directory.
    pub(crate) fn entries(
        &self,
        path: &[u8],
        mut tell: impl FnMut(&[u8], Option<Kind>, u64),
    ) -> Result<()> {
        let mut dir = Dir::new(self.open_list(path)?)?;
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !self.hides(&join(path, name)) {
                tell(name, kind_of(entry.file_type()), entry.ino());
            }
        }
        Ok(())
    }

    /// Tells every file below that is no directory: the directory it lies in, its name, and its number as that
    /// directory has it. What cannot be listed, or is gone, has none.
    pub(crate) fn each_file(&self, mut tell: impl FnMut(&[u8], &[u8], u64)) {
        let mut open = vec![Rel::new()];
        while let Some(dir) = open.pop() {
            let _ = self.entries(&dir, |name, kind, number| {
                let looked_at = || self.stat(&join(&dir, name)).ok();
                let kind = kind.or_else(|| Some(Kind::of_mode(looked_at()?.st_mode)));
                if kind == Some(Kind::Dir) {
                    open.push(join(&dir, name));
                } else {
                    tell(&dir, name, number);
                }
            });
        }
    }

    fn open_list(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.open_beneath(path, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_beneath(path, flags),
            other => other,
        }
    }

    /// Extended attributes in the `user.` name space, and access lists.
    pub(crate) fn xattrs(&self, path: &[u8]) -> Result<Xattrs> {
        match split(path) {
            None => xattrs_of(format!("/proc/self/fd/{}/.", self.root.as_raw_fd()).as_bytes()),
            Some((parent, name)) => {
                let dir = self.dir(parent)?;
                let mut proc_path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
                proc_path.extend_from_slice(name);
                xattrs_of(&proc_path)
            }
        }
    }

    /// Whether its file system has access lists.
    pub(crate) fn keeps_acls(&self) -> bool {
        let path = format!("/proc/self/fd/{}/.", self.root.as_raw_fd());
        let mut none: [u8; 0] = [];
        let asked = rustix::fs::getxattr(path, acl::ACCESS, &mut none[..]);
        !matches!(asked, Err(Errno::OPNOTSUPP | Errno::NOSYS))
    }

    /// Whether a file there can have these attributes: what its file system says of a file without a
    /// name. Few bytes need no asking.
    ///
    /// # Errors
    /// What the file system says: mostly that there is no space for as much.
    pub(crate) fn takes_xattrs(&self, all: &Xattrs) -> Result<()> {
        const ALWAYS_BYTES: usize = 256;
        let bytes: usize = all.iter().map(|(n, v)| n.len() + v.len() + 32).sum();
        if bytes <= ALWAYS_BYTES {
            return Ok(());
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let Ok(file) = rustix::fs::openat(&*self.root, ".", flags, mode) else {
            // It has no such files; then the commit tells.
            return Ok(());
        };
        for (name, value) in all.iter().filter(|(name, _)| !acl::is_list(name)) {
            let none = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&file, name.as_slice(), value, none)?;
        }
        Ok(())
    }

    /// Makes everything on its file system durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(&*self.root, ".", flags, Mode::empty())?)
    }

    pub(crate) fn statfs(&self) -> Result<rustix::fs::StatVfs> {
        rustix::fs::fstatvfs(&*self.root)
    }

    /// Opens what lies at a path, of any length: the kernel takes so much of it at once, so that a
    /// longer one is walked in parts.
    fn open_beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let mut from = Arc::clone(&self.root);
        let mut rest = path;
        while rest.len() > PART_BYTES_MAX {
            let fits = rest.get(..PART_BYTES_MAX).unwrap_or_default();
            let end = fits.iter().rposition(|b| *b == b'/');
            let (part, behind) = end
                .and_then(|end| Some((rest.get(..end)?, rest.get(end + 1..)?)))
                .ok_or(Errno::NAMETOOLONG)?;
            let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            from = Arc::new(open_part(&from, part, on_the_way)?);
            rest = behind;
        }
        open_part(&from, rest, flags)
    }
}

fn open_part(from: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(from, path, flags, Mode::empty(), resolve) {
            // A rename elsewhere on the host made the kernel unsure; it asks to try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// `user.` attributes and access lists of an open file.
pub(crate) fn xattrs_of_file(file: &File) -> Result<Xattrs> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    xattrs_by(
        |names| rustix::fs::listxattr(&path, names),
        |name, value| rustix::fs::getxattr(&path, name, value),
    )
}

/// Copies a file's content and attributes, durably. The owner may read the copy in any case.
pub(crate) fn copy_whole(source: &File, target: &File) -> Result<()> {
    crate::bytes::copy(source, target)?;
    for (name, value) in xattrs_of_file(source)? {
        // A file system without them keeps the rest.
        let _ = rustix::fs::fsetxattr(
            target,
            name.as_slice(),
            &acl::given(&name, &value, 0o600),
            rustix::fs::XattrFlags::empty(),
        );
    }
    rustix::fs::fsync(target)
}

/// Which of our directories lie in a base, as paths of it.
fn hidden(base: &Path, own: &[PathBuf]) -> Vec<Rel> {
    let Ok(base) = base.canonicalize() else {
        return Vec::new();
    };
    own.iter()
        .filter_map(|own| own.canonicalize().ok())
        .filter_map(|own| {
            own.strip_prefix(&base)
                .map(|rel| rel.as_os_str().as_bytes().to_vec())
                .ok()
        })
        .collect()
}

fn kind_of(file_type: FileType) -> Option<Kind> {
    Some(match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
        FileType::Unknown => return None,
    })
}

/// `user.` attributes and access lists of what lies at a path whose directory is pinned by a descriptor.
fn xattrs_of(path: &[u8]) -> Result<Xattrs> {
    xattrs_by(
        |names| rustix::fs::llistxattr(path, names),
        |name, value| rustix::fs::lgetxattr(path, name, value),
    )
}

fn xattrs_by(
    list: impl Fn(&mut [u8]) -> Result<usize>,
    value_of: impl Fn(&[u8], &mut [u8]) -> Result<usize>,
) -> Result<Xattrs> {
    let mut found = Xattrs::new();
    let mut names = vec![0u8; 4096];
    let len = loop {
        match list(&mut names) {
            Ok(len) => break len,
            Err(Errno::RANGE) if names.len() < 1 << 20 => names.resize(names.len() * 4, 0),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(found),
            Err(error) => return Err(error),
        }
    };
    for name in names.get(..len).unwrap_or_default().split(|b| *b == 0) {
        if !name.starts_with(b"user.") && !acl::is_list(name) {
            continue;
        }
        let mut value = vec![0u8; 65536];
        match value_of(name, &mut value) {
            Ok(len) => {
                value.truncate(len);
                found.insert(name.to_vec(), acl::kept(name, value));
            }
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
