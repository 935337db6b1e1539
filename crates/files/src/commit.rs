//! Carries one delta out on the host: exactly that delta, over exactly the base that the agent saw,
//! old or new at every instant, and nothing of it is ever run or opened as anything but a file.
//!
//! The new version is made under a temporary name in the same directory and swapped in with one
//! `renameat2`; only then is it looked at what came out: if that is not the base the agent saw, it
//! is swapped back. What came out is kept for `kairos undo`. An intent in the journal comes first.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use kernel::Digest;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::attr::{Kind, Time, Version};
use crate::base::Base;
use crate::bytes::{self, digest};
use crate::delta::{Content, Delta, New};
use crate::path::{self, Rel, join, split};
use crate::swap;
use crate::upper::{Entry, Upper};

/// Beginning of every temporary name in the owner's directories.
pub(crate) const TEMP_PREFIX: &str = ".kairos-";

/// Why a delta was not carried out. The host is as it was before.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The owner changed the place meanwhile.
    #[error("conflict: `{path}` {what}; the host's version stays as it is")]
    Conflict {
        /// Which path.
        path: String,
        /// What happened to it.
        what: String,
    },
    /// What is staged is no longer what was approved.
    #[error("`{0}` changed after it was approved; the new version needs an approval of its own")]
    Changed(String),
    /// It was to move elsewhere, which failed, so it stays.
    #[error("`{0}` stays where it is, because it could not be moved")]
    Moved(String),
    /// The system said no.
    #[error("cannot {what} `{path}`: {errno}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: String,
        /// What the system said.
        errno: String,
    },
    /// A test stopped it here, as a crash would.
    #[error("stopped at step `{0}`")]
    Stopped(&'static str),
}

/// Called before each step that changes the disk; an error stops there, as a crash would.
pub(crate) type Steps = dyn Fn(&'static str) -> Result<(), CommitError> + Send + Sync;

/// One tree's place on the host.
pub(crate) struct Host {
    pub(crate) base: Arc<Base>,
    pub(crate) upper: Arc<Upper>,
    /// Makes temporary names of different sessions differ.
    pub(crate) tag: String,
    pub(crate) steps: Arc<Steps>,
}

impl Host {
    /// Writes down what is about to happen. [`Upper::sync`] once for all intents of a batch.
    pub(crate) fn intend(&self, event: u64, delta: &Delta) -> Result<(), CommitError> {
        let temp = self.temp(event, delta);
        let entry = Entry::Intent {
            event,
            delta: Box::new(delta.clone()),
            temp,
        };
        self.upper
            .append(&entry)
            .map_err(|e| failed("note the intent to change", delta, e))
    }

    /// Carries it out. The new version is in place when this returns, durable after
    /// [`Host::sync_dir`]. `None` for what is gone.
    pub(crate) fn carry_out(
        &self,
        event: u64,
        delta: &Delta,
    ) -> Result<Option<Version>, CommitError> {
        let (parent, name) = split(&delta.path).unwrap_or((b"", b"."));
        let dir = match self.base.dir_now(parent) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(conflict(delta, "has no directory to lie in any more"));
            }
            Err(errno) => return Err(failed("open the directory of", delta, errno)),
        };
        let temp_path = self.temp(event, delta);
        let temp = split(&temp_path)
            .map_or(&temp_path[..], |(_, name)| name)
            .to_vec();
        let place = Place {
            host: self,
            dir,
            name,
            temp: &temp,
            delta,
            event,
        };
        match (&delta.base, &delta.new) {
            (None, None) => return Ok(None),
            (Some(base), None) => place.remove(base)?,
            (base, Some(new)) => place.put(base.as_ref(), new)?,
        }
        if delta.new.as_ref().is_none_or(|new| new.kind == Kind::Dir)
            || delta
                .base
                .as_ref()
                .is_some_and(|base| base.kind == Kind::Dir)
        {
            self.base.forget_dirs();
        }
        if delta.new.is_none() {
            // What lies there now, if anything does, its owner has just made.
            return Ok(None);
        }
        self.base
            .version(&delta.path)
            .map_err(|e| failed("look at", delta, e))
    }

    /// Makes the names in a directory durable; one that is gone needs nothing.
    pub(crate) fn sync_dir(&self, path: &[u8]) -> Result<(), CommitError> {
        (self.steps)("sync directory")?;
        let Ok(dir) = self.base.dir_now(path) else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = rustix::fs::openat(&dir, ".", flags, Mode::empty())
            .and_then(|dir| rustix::fs::fsync(&dir));
        synced.map_err(|errno| CommitError::Failed {
            what: "make durable the directory",
            path: path::text(path),
            errno: errno.to_string(),
        })
    }

    /// Writes down that it happened, or did not.
    pub(crate) fn finished(&self, event: u64, ok: bool, what: &str) {
        // Missing, it is done again by recovery, which finds it done.
        let _ = self.upper.append(&Entry::Finished {
            event,
            ok,
            what: what.to_string(),
        });
    }

    pub(crate) fn temp(&self, event: u64, delta: &Delta) -> Rel {
        let parent = split(&delta.path).map_or(&b""[..], |(parent, _)| parent);
        join(
            parent,
            format!("{TEMP_PREFIX}{}-{event}", self.tag).as_bytes(),
        )
    }

    /// Where the host's version that an event replaced is kept.
    pub(crate) fn undo_path(&self, event: u64) -> PathBuf {
        self.upper.undo().join(event.to_string())
    }

    /// Copies what the agent made to where its user finds it; for a path the owner changed too.
    pub(crate) fn keep_aside(&self, delta: &Delta) -> Option<PathBuf> {
        let new = delta.new.as_ref()?;
        let target = self.upper.dir().join("conflicts").join(os(&delta.path));
        std::fs::create_dir_all(target.parent()?).ok()?;
        match new.kind {
            Kind::File => {
                let source = self.source(new).ok()?;
                let copy = File::create(&target).ok()?;
                bytes::copy(&source, &copy).ok()?;
            }
            Kind::Symlink => {
                let _ = std::fs::remove_file(&target);
                std::os::unix::fs::symlink(os(new.target.as_ref()?), &target).ok()?;
            }
            _ => return None,
        }
        Some(target)
    }

    /// The bytes that a file is to have.
    pub(crate) fn source(&self, new: &New) -> Result<File, Errno> {
        match &new.content {
            Content::Data(id) => self.upper.open_data(*id),
            Content::Base(path) => Ok(self.base.open_file(path)?.0),
            Content::None => Err(Errno::INVAL),
        }
    }
}

/// One delta at its place.
struct Place<'a> {
    host: &'a Host,
    dir: OwnedFd,
    name: &'a [u8],
    temp: &'a [u8],
    delta: &'a Delta,
    event: u64,
}

impl Place<'_> {
    fn step(&self, name: &'static str) -> Result<(), CommitError> {
        (self.host.steps)(name)
    }

    fn failed(&self, what: &'static str) -> impl Fn(Errno) -> CommitError {
        let delta = self.delta.clone();
        move |errno| failed(what, &delta, errno)
    }

    fn conflict(&self, what: &str) -> CommitError {
        conflict(self.delta, what)
    }

    /// Takes the name away.
    fn remove(&self, base: &Version) -> Result<(), CommitError> {
        self.check_base(base)?;
        if base.kind == Kind::Dir {
            self.step("remove directory")?;
            return match rustix::fs::unlinkat(&self.dir, self.name, AtFlags::REMOVEDIR) {
                Ok(()) => Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    Err(self.conflict("holds files that the agent did not see"))
                }
                Err(errno) => Err(self.failed("remove")(errno)),
            };
        }
        self.step("move away")?;
        swap::take_name(&self.dir, self.name, self.temp).map_err(self.failed("move away"))?;
        if !self.is_at(self.temp, base) {
            swap::take_name(&self.dir, self.temp, self.name).map_err(self.failed("put back"))?;
            return Err(self.conflict("was changed on the host meanwhile"));
        }
        self.keep_for_undo()
    }

    /// Puts the new version there.
    fn put(&self, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        if let Some(base) = base {
            self.check_base(base)?;
            let in_place = base.kind == new.kind
                && (new.kind == Kind::Dir
                    || (new.kind == Kind::File && base.digest == Some(new.digest)));
            if in_place {
                return self.set_attributes(base, new);
            }
        }
        let made = self.make(base, new);
        if let Err(error) = made {
            if !matches!(error, CommitError::Stopped(_)) {
                self.discard(new.kind);
            }
            return Err(error);
        }
        self.step("swap in")?;
        let Some(base) = base else {
            return match swap::take_name(&self.dir, self.temp, self.name) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => {
                    self.discard(new.kind);
                    Err(self.conflict("appeared on the host meanwhile"))
                }
                Err(errno) => {
                    self.discard(new.kind);
                    Err(self.failed("create")(errno))
                }
            };
        };
        match swap::exchange(&self.dir, self.temp, self.name) {
            Ok(()) => {}
            Err(Errno::NOENT) => {
                self.discard(new.kind);
                return Err(self.conflict("was removed on the host meanwhile"));
            }
            Err(errno) => {
                self.discard(new.kind);
                return Err(self.failed("replace")(errno));
            }
        }
        self.step("swapped")?;
        if !self.is_at(self.temp, base) {
            swap::exchange(&self.dir, self.temp, self.name).map_err(self.failed("put back"))?;
            self.discard(new.kind);
            return Err(self.conflict("was changed on the host meanwhile"));
        }
        if base.kind == Kind::Dir {
            return match rustix::fs::unlinkat(&self.dir, self.temp, AtFlags::REMOVEDIR) {
                Ok(()) => Ok(()),
                Err(_) => {
                    swap::exchange(&self.dir, self.temp, self.name)
                        .map_err(self.failed("put back"))?;
                    self.discard(new.kind);
                    Err(self.conflict("holds files that the agent did not see"))
                }
            };
        }
        self.keep_for_undo()
    }

    /// Makes the new version under the temporary name, complete and durable.
    fn make(&self, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        self.step("make")?;
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
                self.step("sync file")?;
                rustix::fs::fsync(&file).map_err(self.failed("make durable"))
            }
            Kind::Dir => {
                rustix::fs::mkdirat(&self.dir, self.temp, Mode::from_raw_mode(0o700))
                    .map_err(self.failed("create"))?;
                let fd = self.open_path(self.temp)?;
                self.own_and_mode(&fd, base, new)
            }
            Kind::Symlink => {
                let target = new.target.as_deref().unwrap_or_default();
                rustix::fs::symlinkat(target, &self.dir, self.temp).map_err(self.failed("create"))
            }
            Kind::Fifo => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(&self.dir, self.temp, FileType::Fifo, mode, 0)
                    .map_err(self.failed("create"))?;
                let fd = self.open_path(self.temp)?;
                self.own_and_mode(&fd, base, new)
            }
            Kind::Socket | Kind::Device => Err(self.failed("create")(Errno::PERM)),
        }
    }

    /// Gives a new file its owner, attributes, mode and times, in this order: a change of owner
    /// clears bits of the mode.
    fn dress(&self, file: &File, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        self.own_and_mode(file, base, new)?;
        match &new.xattrs {
            Some(all) => {
                for (name, value) in all {
                    rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
                        .map_err(self.failed("set attributes of"))?;
                }
                self.copy_xattrs(file, |name| !name.starts_with(b"user."));
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
    fn set_attributes(&self, base: &Version, new: &New) -> Result<(), CommitError> {
        self.step("set attributes")?;
        let fd = self.open_path(self.name)?;
        let stat = rustix::fs::fstat(&fd).map_err(self.failed("look at"))?;
        let now = Version::of(&stat);
        if (now.kind, now.ino, now.dev) != (base.kind, base.ino, base.dev) {
            return Err(self.conflict("was replaced on the host meanwhile"));
        }
        if let Some(all) = &new.xattrs {
            let target = proc_path(&fd);
            for (name, value) in all {
                rustix::fs::setxattr(&target, name.as_slice(), value, XattrFlags::empty())
                    .map_err(self.failed("set attributes of"))?;
            }
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
        self.own_and_mode(&fd, Some(base), new)
    }

    /// Before anything is changed: is it still the base that the agent saw?
    fn check_base(&self, base: &Version) -> Result<(), CommitError> {
        let stat = match rustix::fs::statat(&self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                return Err(self.conflict("was removed on the host meanwhile"));
            }
            Err(errno) => return Err(self.failed("look at")(errno)),
        };
        let mut now = Version::of(&stat);
        if base.same(&now) {
            return Ok(());
        }
        // Only ctime moved (another link was made or removed): the content decides. What is only
        // removed is kept for undo, so size and time of change are enough.
        let close = now.kind == base.kind
            && now.ino == base.ino
            && now.dev == base.dev
            && now.mode == base.mode
            && now.size == base.size
            && now.mtime == base.mtime;
        if close && (self.delta.new.is_none() || now.kind != Kind::File) {
            return Ok(());
        }
        if now.kind == Kind::File && base.digest.is_some() {
            now.digest = self
                .host
                .base
                .open_file(&self.delta.path)
                .ok()
                .and_then(|(file, _)| digest(&file).ok())
                .map(|d| d.0);
            if close && base.same_content(&now) {
                return Ok(());
            }
        }
        Err(self.conflict("was changed on the host meanwhile"))
    }

    /// Whether what lies under a name is the base file (its ctime moves with its name).
    fn is_at(&self, name: &[u8], base: &Version) -> bool {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            let now = Version::of(&stat);
            now.kind == base.kind
                && now.ino == base.ino
                && now.dev == base.dev
                && now.mode == base.mode
                && (base.kind == Kind::Dir || (now.size == base.size && now.mtime == base.mtime))
        })
    }

    /// Moves what came out into the session's directory.
    fn keep_for_undo(&self) -> Result<(), CommitError> {
        self.step("keep for undo")?;
        let undo = self.host.undo_path(self.event);
        match rustix::fs::renameat(&self.dir, self.temp, rustix::fs::CWD, &undo) {
            Ok(()) => return Ok(()),
            Err(Errno::XDEV) => {}
            Err(errno) => return Err(self.failed("keep the old version of")(errno)),
        }
        let stat = rustix::fs::statat(&self.dir, self.temp, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(self.failed("look at the old version of"))?;
        match Kind::of_mode(stat.st_mode) {
            Kind::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let source = rustix::fs::openat(&self.dir, self.temp, flags, Mode::empty())
                    .map_err(self.failed("keep the old version of"))?;
                let kept = File::create(&undo)
                    .map_err(|e| self.failed("keep the old version of")(bytes::errno(&e)))?;
                bytes::copy(&File::from(source), &kept)
                    .and_then(|()| rustix::fs::fsync(&kept))
                    .map_err(self.failed("keep the old version of"))?;
            }
            Kind::Symlink => {
                let target = rustix::fs::readlinkat(&self.dir, self.temp, Vec::new())
                    .map_err(self.failed("keep the old version of"))?;
                rustix::fs::symlinkat(target.as_c_str(), rustix::fs::CWD, &undo)
                    .map_err(self.failed("keep the old version of"))?;
            }
            // The intent's record of its base is all there is to keep.
            _ => {}
        }
        rustix::fs::unlinkat(&self.dir, self.temp, AtFlags::empty())
            .map_err(self.failed("clear away the old version of"))
    }

    /// Removes the temporary name.
    fn discard(&self, kind: Kind) {
        let flags = if kind == Kind::Dir {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        let _ = rustix::fs::unlinkat(&self.dir, self.temp, flags);
    }

    fn open_path(&self, name: &[u8]) -> Result<OwnedFd, CommitError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::empty()).map_err(self.failed("look at"))
    }
}

/// A path that means exactly what a descriptor is open on.
fn proc_path(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn set_times(file: &File, mtime: Time) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: mtime.spec(),
    };
    rustix::fs::futimens(file, &times)
}

fn os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

fn failed(what: &'static str, delta: &Delta, errno: Errno) -> CommitError {
    CommitError::Failed {
        what,
        path: path::text(&delta.path),
        errno: errno.to_string(),
    }
}

fn conflict(delta: &Delta, what: &str) -> CommitError {
    CommitError::Conflict {
        path: path::text(&delta.path),
        what: what.to_string(),
    }
}
