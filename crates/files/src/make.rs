//! The new version of a path: made under a temporary name, complete and durable, or its attributes
//! changed in place.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kernel::Digest;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::acl;
use crate::attr::{Kind, Time, Version, Xattrs};
use crate::bytes::{self, digest};
use crate::commit::{CommitError, Made, Place};
use crate::delta::New;
use crate::path::{self, split};

impl Place<'_> {
    /// Makes the new version under the temporary name, complete and durable.
    pub(crate) fn make(&self, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        self.step("make")?;
        if self.link(new) {
            return Ok(());
        }
        match new.kind {
            Kind::File => {
                let flags = OFlags::RDWR
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let fd =
                    rustix::fs::openat(&self.dir, self.temp, flags, Mode::from_raw_mode(0o600))
                        .map_err(self.failed("create a temporary file beside"))?;
                let file = File::from(fd);
                self.step("copy")?;
                let source = self
                    .host
                    .source(new)
                    .map_err(self.failed("read the staged content of"))?;
                bytes::copy(&source, &file).map_err(self.failed("write"))?;
                let written =
                    digest(&file).map_err(|e| self.failed("read back")(bytes::errno(&e)))?;
                if written != Digest(new.digest) {
                    return Err(CommitError::Changed(path::text(&self.delta.path)));
                }
                self.dress(&file, base, new)?;
                if self.made == Made::Loosely {
                    return Ok(());
                }
                self.step("sync file")?;
                rustix::fs::fsync(&file).map_err(self.failed("make durable"))
            }
            Kind::Dir => {
                rustix::fs::mkdirat(&self.dir, self.temp, Mode::from_raw_mode(0o700))
                    .map_err(self.failed("create"))?;
                let fd = self.open_path(self.temp)?;
                inherit_no_list(&fd);
                if let Some(all) = &new.xattrs {
                    self.set_xattrs(&fd, all, new.mode)?;
                }
                self.own_and_mode(&fd, base, new)
            }
            Kind::Symlink => {
                let target = new.target.as_deref().unwrap_or_default();
                rustix::fs::symlinkat(target, &self.dir, self.temp)
                    .map_err(self.failed("create"))?;
                // A time is not worth failing for.
                let times = only_mtime(new.mtime);
                let _ =
                    rustix::fs::utimensat(&self.dir, self.temp, &times, AtFlags::SYMLINK_NOFOLLOW);
                Ok(())
            }
            Kind::Fifo => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(&self.dir, self.temp, FileType::Fifo, mode, 0)
                    .map_err(self.failed("create"))?;
                let fd = self.open_path(self.temp)?;
                inherit_no_list(&fd);
                if let Some(all) = &new.xattrs {
                    self.set_xattrs(&fd, all, new.mode)?;
                }
                self.own_and_mode(&fd, base, new)
            }
            Kind::Socket | Kind::Device => Err(self.failed("create")(Errno::PERM)),
        }
    }

    /// Gives a new file its owner, attributes, mode and times, in this order: a change of owner
    /// clears bits of the mode.
    fn dress(&self, file: &File, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        inherit_no_list(file);
        self.own_and_mode(file, base, new)?;
        match &new.xattrs {
            Some(all) => {
                self.set_xattrs(file, all, new.mode)?;
                self.copy_xattrs(file, |name| {
                    !name.starts_with(b"user.") && !acl::is_list(name)
                });
            }
            None => self.copy_xattrs(file, |_| true),
        }
        // An access list can be narrower than the mode it came with; the mode asked for counts.
        rustix::fs::fchmod(file, Mode::from_raw_mode(new.mode))
            .map_err(self.failed("set the mode of"))?;
        set_times(file, new.mtime).map_err(self.failed("set the times of"))
    }

    /// Takes over the base file's attributes, access lists included, as far as we may.
    fn copy_xattrs(&self, file: &File, wanted: impl Fn(&[u8]) -> bool) {
        let Ok(old) = self.open_path(self.name) else {
            return;
        };
        let old = proc_path(&old);
        let mut names = vec![0u8; 65536];
        let Ok(len) = rustix::fs::listxattr(&old, &mut names[..]) else {
            return;
        };
        for name in names.get(..len).unwrap_or_default().split(|b| *b == 0) {
            // Rights that a file gains by running are not handed on to content the agent wrote.
            if name.is_empty() || name == b"security.capability" || !wanted(name) {
                continue;
            }
            let mut value = vec![0u8; 65536];
            if let Ok(len) = rustix::fs::getxattr(&old, name, &mut value[..]) {
                let value = value.get(..len).unwrap_or_default();
                let _ = rustix::fs::fsetxattr(file, name, value, XattrFlags::empty());
            }
        }
    }

    fn own_and_mode(
        &self,
        fd: &impl AsFd,
        base: Option<&Version>,
        new: &New,
    ) -> Result<(), CommitError> {
        let target = proc_path(fd);
        let now = rustix::fs::stat(&target).map_err(self.failed("look at"))?;
        if (now.st_uid, now.st_gid) != (new.uid, new.gid) {
            let changed = rustix::fs::chown(
                &target,
                Some(Uid::from_raw(new.uid)),
                Some(Gid::from_raw(new.gid)),
            );
            // An ordinary user cannot give files away; where the base file was somebody else's,
            // keeping its owner is not possible either, and then it is not replaced silently.
            if let Err(errno) = changed
                && base.is_some()
            {
                return Err(self.failed("keep the owner of")(errno));
            }
        }
        rustix::fs::chmod(&target, Mode::from_raw_mode(new.mode))
            .map_err(self.failed("set the mode of"))
    }

    /// Changes mode, owner and attributes of what is there, its content staying.
    pub(crate) fn set_attributes(&self, base: &Version, new: &New) -> Result<(), CommitError> {
        self.step("set attributes")?;
        let fd = self.open_path(self.name)?;
        let stat = rustix::fs::fstat(&fd).map_err(self.failed("look at"))?;
        let now = Version::of(&stat);
        if (now.kind, now.ino, now.dev) != (base.kind, base.ino, base.dev) {
            return Err(self.conflict("was replaced on the host meanwhile"));
        }
        if let Some(all) = &new.xattrs {
            let target = proc_path(&fd);
            self.set_xattrs(&fd, all, new.mode)?;
            for name in self
                .host
                .base
                .xattrs(&self.delta.path)
                .unwrap_or_default()
                .keys()
            {
                if !all.contains_key(name) {
                    rustix::fs::removexattr(&target, name.as_slice())
                        .map_err(self.failed("set attributes of"))?;
                }
            }
        }
        self.own_and_mode(&fd, Some(base), new)?;
        if new.kind == Kind::Dir {
            let noted = self.host.has_its_mode(&stat);
            noted.map_err(self.failed("note the mode of"))?;
        }
        if new.timed && new.kind == Kind::File {
            set_times_at(&fd, new.mtime).map_err(self.failed("set the times of"))?;
        }
        Ok(())
    }

    fn set_xattrs(&self, fd: &impl AsFd, all: &Xattrs, mode: u32) -> Result<(), CommitError> {
        let target = proc_path(fd);
        for (name, value) in all {
            let value = acl::given(name, value, mode);
            rustix::fs::setxattr(&target, name.as_slice(), &value, XattrFlags::empty())
                .map_err(self.failed("set attributes of"))?;
        }
        Ok(())
    }

    /// Whether the file that is to be changed has no other name anywhere.
    pub(crate) fn has_one_name(&self) -> bool {
        rustix::fs::statat(&self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_nlink == 1)
    }

    /// Makes the temporary name another one of a file that is in place already with exactly this
    /// content, because the two are one file in the view. Says whether it could.
    fn link(&self, new: &New) -> bool {
        new.links.iter().any(|path| {
            let Some((parent, name)) = split(path) else {
                return false;
            };
            let Ok(dir) = self.host.base.dir_now(parent) else {
                return false;
            };
            let is_it =
                rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
                    let there = Version::of(&stat);
                    let alike = match new.kind {
                        Kind::File => there.size == new.size,
                        _ => true,
                    };
                    // Mode and owner of a link mean nothing.
                    let owned = (there.mode, there.uid, there.gid) == (new.mode, new.uid, new.gid);
                    let timed = there.mtime.secs == new.mtime.secs;
                    there.kind == new.kind
                        && alike
                        && (new.kind == Kind::Symlink || owned)
                        && (new.kind != Kind::File || timed)
                });
            is_it
                && self.has_attributes(path, new)
                && rustix::fs::linkat(&dir, name, &self.dir, self.temp, AtFlags::empty()).is_ok()
                && self.holds(new)
        })
    }

    /// Whether what is in place at a path has the attributes that are wanted.
    pub(crate) fn has_attributes(&self, path: &[u8], new: &New) -> bool {
        let there = self.host.base.xattrs(path).ok();
        new.xattrs.is_none() || new.xattrs == there
    }

    /// Whether what was linked to is what is wanted; if not, the link goes away again.
    fn holds(&self, new: &New) -> bool {
        let same = match new.kind {
            Kind::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let found = rustix::fs::openat(&self.dir, self.temp, flags, Mode::empty())
                    .map(File::from)
                    .ok()
                    .and_then(|file| digest(&file).ok());
                found == Some(Digest(new.digest))
            }
            Kind::Symlink => rustix::fs::readlinkat(&self.dir, self.temp, Vec::new())
                .is_ok_and(|target| Some(target.as_bytes()) == new.target.as_deref()),
            _ => true,
        };
        if !same {
            let _ = rustix::fs::unlinkat(&self.dir, self.temp, AtFlags::empty());
        }
        same
    }
}

/// A path that means exactly what a descriptor is open on.
fn proc_path(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn set_times(file: &File, mtime: Time) -> Result<(), Errno> {
    rustix::fs::futimens(file, &only_mtime(mtime))
}

/// The same for what is open as a place only (`O_PATH`).
pub(crate) fn set_times_at(fd: &OwnedFd, mtime: Time) -> Result<(), Errno> {
    let path = proc_path(fd);
    rustix::fs::utimensat(rustix::fs::CWD, path, &only_mtime(mtime), AtFlags::empty())
}

fn only_mtime(mtime: Time) -> Timestamps {
    Timestamps {
        last_access: rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: mtime.spec(),
    }
}

/// A directory of the owner's may pass a list on to what is made in it; what the agent sees has been given
/// its own already.
fn inherit_no_list(fd: &impl AsFd) {
    let target = proc_path(fd);
    for name in [acl::ACCESS, acl::DEFAULT] {
        // Mostly there is none.
        let _ = rustix::fs::removexattr(&target, name);
    }
}
