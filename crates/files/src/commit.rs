//! Carries one delta out on the host: exactly that delta, over exactly the base that the agent saw,
//! old or new at every instant, and nothing of it is ever run or opened as anything but a file.
//!
//! The new version is made under a temporary name in the same directory and swapped in with one
//! `renameat2`; only then is it looked at what came out: if that is not the base the agent saw, it
//! is swapped back. What came out is kept for `kairos undo`. An intent in the journal comes first.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::attr::{Kind, Version};
use crate::base::{Base, copy_whole};
use crate::bytes::{self, digest};
use crate::delta::{Content, Delta, New};
use crate::lift::Trouble;
use crate::made_in::{MadeIn, same_dir};
use crate::make::set_times_at;
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
    /// The directory that it is to lie in was to be made before, which failed.
    #[error("`{0}` cannot be put in place, because its directory could not be made")]
    NotMade(String),
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
    /// Where temporary names were made that are to be put in place later.
    pub(crate) made_in: MadeIn,
    /// Events that changed nothing, because the owner had done the same.
    pub(crate) agreed: Mutex<HashSet<u64>>,
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

    /// Makes the new version under its temporary name, not durably yet, so that one
    /// [`Host::sync_all`] does for many. Says whether there was anything to be made.
    pub(crate) fn prepare(&self, event: u64, delta: &Delta) -> Result<bool, CommitError> {
        // Names of one file find each other when they are carried out one by one.
        let Some(new) = delta
            .new
            .as_ref()
            .filter(|new| new.kind == Kind::File && new.links.is_empty())
        else {
            return Ok(false);
        };
        self.at_place(event, delta, Made::Loosely, |place| {
            let base = delta.base.as_ref();
            let base = match base {
                Some(base) => match place.check_base(base) {
                    // It is looked at again when it is carried out, and told then.
                    Err(CommitError::Conflict { .. }) => return Ok(false),
                    checked => Some(&checked?),
                },
                None => None,
            };
            if base.is_some_and(|base| place.stays_in_place(base, new)) {
                return Ok(false);
            }
            place.lift_dir()?;
            place.make_or_discard(base, new)?;
            self.made_in.note(event, &place.dir);
            Ok(true)
        })
    }

    /// Takes away what was prepared.
    pub(crate) fn discard_prepared(&self, event: u64, delta: &Delta) {
        let discarded = self.at_place(event, delta, Made::Already, |place| {
            place.discard(Kind::File);
            Ok(())
        });
        // Left over, recovery clears it away.
        drop(discarded);
    }

    /// Makes durable what was prepared.
    pub(crate) fn sync_all(&self) -> Result<(), CommitError> {
        (self.steps)("sync all")?;
        self.base.sync_all().map_err(|errno| CommitError::Failed {
            what: "make durable the files of",
            path: self.base.path().display().to_string(),
            errno: errno.to_string(),
        })
    }

    /// Carries it out. The new version is in place when this returns, durable after
    /// [`Host::sync_dir`]. `None` for what is gone.
    pub(crate) fn carry_out(
        &self,
        event: u64,
        delta: &Delta,
    ) -> Result<Option<Version>, CommitError> {
        self.carry_out_as(event, delta, Made::Not)
    }

    /// The same for what was prepared and made durable.
    pub(crate) fn carry_out_prepared(
        &self,
        event: u64,
        delta: &Delta,
    ) -> Result<Option<Version>, CommitError> {
        self.carry_out_as(event, delta, Made::Already)
    }

    fn carry_out_as(
        &self,
        event: u64,
        delta: &Delta,
        made: Made,
    ) -> Result<Option<Version>, CommitError> {
        match (&delta.base, &delta.new) {
            (None, None) => return Ok(None),
            (Some(base), None) => {
                let removed = self.at_place(event, delta, made, |place| place.remove(base));
                let conflict = matches!(removed, Err(CommitError::Conflict { .. }));
                if conflict && matches!(self.base.version(&delta.path), Ok(None)) {
                    // Its owner removed it, too.
                    self.agree(event);
                } else {
                    removed?;
                }
            }
            (base, Some(new)) => {
                self.at_place(event, delta, made, |place| place.put(base.as_ref(), new))?;
            }
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

    fn at_place<T>(
        &self,
        event: u64,
        delta: &Delta,
        made: Made,
        job: impl FnOnce(&Place<'_>) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let (parent, name) = split(&delta.path).unwrap_or((b"", b"."));
        let temp_path = self.temp(event, delta);
        let temp = split(&temp_path)
            .map_or(&temp_path[..], |(_, name)| name)
            .to_vec();
        let made_in = self.made_in.take(event);
        let found = self.dir_of(parent);
        let mut made = made;
        if let Some(there) = made_in
            && !found.as_ref().is_ok_and(|here| same_dir(here, &there))
        {
            // Its owner moved the directory away; nothing of ours stays in it.
            let _ = rustix::fs::unlinkat(&*there, &temp, AtFlags::empty());
            made = Made::Not;
        }
        let dir = match found {
            Ok(dir) => dir,
            Err(Trouble::System(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                return Err(conflict(delta, "has no directory to lie in any more"));
            }
            Err(Trouble::System(errno)) => {
                return Err(failed("open the directory of", delta, errno));
            }
            Err(Trouble::Stopped(error)) => return Err(error),
        };
        let place = Place {
            host: self,
            dir,
            name,
            temp: &temp,
            delta,
            event,
            made,
        };
        job(&place)
    }

    /// Gives a directory its time of change, after everything in it is in place.
    pub(crate) fn set_dir_time(&self, delta: &Delta) {
        let wanted = delta
            .new
            .as_ref()
            .filter(|new| new.kind == Kind::Dir && new.timed);
        // A time is not worth failing for: the content is there.
        if let (Some(new), Ok(dir)) = (wanted, self.base.dir_now(&delta.path)) {
            let _ = set_times_at(&dir, new.mtime);
        }
    }

    /// Makes the names in a directory durable; one that is gone needs nothing.
    pub(crate) fn sync_dir(&self, path: &[u8]) -> Result<(), CommitError> {
        (self.steps)("sync directory")?;
        let Ok(dir) = self.base.dir_now(path) else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = match rustix::fs::openat(&dir, ".", flags, Mode::empty()) {
            // One that its owner may not read was made durable when it got its mode back.
            Err(Errno::ACCESS) => Ok(()),
            dir => dir.and_then(|dir| rustix::fs::fsync(&dir)),
        };
        synced.map_err(|errno| CommitError::Failed {
            what: "make durable the directory",
            path: path::text(path),
            errno: errno.to_string(),
        })
    }

    /// The owner has done the same: there is nothing to be done, and nothing for `kairos undo`.
    fn agree(&self, event: u64) {
        self.agreed.lock().insert(event);
    }

    /// Writes down that it happened, or did not.
    pub(crate) fn finished(&self, event: u64, ok: bool, what: &str) {
        let ok = ok && !self.agreed.lock().remove(&event);
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
            Content::Kept(event) => {
                crate::undo::open_kept(&self.undo_path(*event)).map_err(|e| bytes::errno(&e))
            }
            Content::None => Err(Errno::INVAL),
        }
    }
}

/// One delta at its place.
pub(crate) struct Place<'a> {
    pub(crate) host: &'a Host,
    pub(crate) dir: OwnedFd,
    pub(crate) name: &'a [u8],
    pub(crate) temp: &'a [u8],
    pub(crate) delta: &'a Delta,
    event: u64,
    pub(crate) made: Made,
}

/// How far the new version is when it is to be put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Not yet; it is made durably.
    Not,
    /// It is just being made, and one sync for many follows.
    Loosely,
    /// It lies under its temporary name, durable.
    Already,
}

impl Place<'_> {
    pub(crate) fn step(&self, name: &'static str) -> Result<(), CommitError> {
        (self.host.steps)(name)
    }

    pub(crate) fn failed(&self, what: &'static str) -> impl Fn(Errno) -> CommitError {
        let delta = self.delta.clone();
        move |errno| failed(what, &delta, errno)
    }

    pub(crate) fn conflict(&self, what: &str) -> CommitError {
        conflict(self.delta, what)
    }

    /// Lets its directory be changed.
    fn lift_dir(&self) -> Result<(), CommitError> {
        let parent = split(&self.delta.path).map_or(&b""[..], |(parent, _)| parent);
        match self.host.lift(parent, &self.dir) {
            Ok(()) => Ok(()),
            Err(Trouble::System(errno)) => {
                Err(self.failed("make writable the directory of")(errno))
            }
            Err(Trouble::Stopped(error)) => Err(error),
        }
    }

    /// What lies under a name in the directory.
    fn look_at(&self, name: &[u8]) -> Result<Stat, Errno> {
        let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(self.host.base.lifted.as_meant(stat))
    }

    /// Takes the name away.
    fn remove(&self, base: &Version) -> Result<(), CommitError> {
        self.check_base(base)?;
        self.lift_dir()?;
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

    /// Whether only attributes change. A file with other names is made anew: they are not to change
    /// with it, unless they are to be decided alike.
    fn stays_in_place(&self, base: &Version, new: &New) -> bool {
        base.kind == new.kind
            && (new.kind == Kind::Dir
                || (new.kind == Kind::File
                    && base.digest == Some(new.digest)
                    && self.has_one_name()))
    }

    fn make_or_discard(&self, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        let made = self.make(base, new);
        if made
            .as_ref()
            .is_err_and(|error| !matches!(error, CommitError::Stopped(_)))
        {
            self.discard(new.kind);
        }
        made
    }

    /// Puts the new version there.
    fn put(&self, base: Option<&Version>, new: &New) -> Result<(), CommitError> {
        let checked = match base.map(|base| self.check_base(base)).transpose() {
            Ok(checked) => checked,
            Err(error) => {
                if self.made == Made::Already {
                    self.discard(new.kind);
                }
                return self.unless_agreed(new, error);
            }
        };
        let base = checked.as_ref();
        if let Some(base) = base
            && self.made == Made::Not
            && self.stays_in_place(base, new)
        {
            return self.set_attributes(base, new);
        }
        self.lift_dir()?;
        if self.made == Made::Not {
            self.make_or_discard(base, new)?;
        }
        self.step("swap in")?;
        let Some(base) = base else {
            return match swap::take_name(&self.dir, self.temp, self.name) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => {
                    self.discard(new.kind);
                    self.unless_agreed(new, self.conflict("appeared on the host meanwhile"))
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

    /// No conflict, if what the owner did is what is wanted.
    fn unless_agreed(&self, new: &New, error: CommitError) -> Result<(), CommitError> {
        let conflict = matches!(error, CommitError::Conflict { .. });
        if !(conflict && self.is_as_wanted(new)) {
            return Err(error);
        }
        self.step("agree")?;
        self.host.agree(self.event);
        Ok(())
    }

    fn is_as_wanted(&self, new: &New) -> bool {
        let Ok(stat) = self.look_at(self.name) else {
            return false;
        };
        let now = Version::of(&stat);
        if now.kind != new.kind {
            return false;
        }
        if new.kind == Kind::Symlink {
            let target = self.host.base.readlink(&self.delta.path).ok();
            return target.is_some() && target == new.target;
        }
        (now.mode, now.uid, now.gid) == (new.mode, new.uid, new.gid)
            && (new.kind != Kind::File
                || (now.size == new.size && self.digest_now() == Some(new.digest)))
            && !(new.timed && new.kind == Kind::File && now.mtime != new.mtime)
            && self.has_attributes(&self.delta.path, new)
    }

    fn digest_now(&self) -> Option<[u8; 32]> {
        let (file, _) = self.host.base.open_file(&self.delta.path).ok()?;
        digest(&file).ok().map(|digest| digest.0)
    }

    /// Before anything is changed: is it still the base that the agent saw? Says how it looks now;
    /// that its owner only touched it, or saved it as it was, is no change.
    fn check_base(&self, base: &Version) -> Result<Version, CommitError> {
        let stat = match self.look_at(self.name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                return Err(self.conflict("was removed on the host meanwhile"));
            }
            Err(errno) => return Err(self.failed("look at")(errno)),
        };
        let mut now = Version::of(&stat);
        if base.same(&now) {
            return Ok(base.clone());
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
            return Ok(base.clone());
        }
        let same_owner = (now.uid, now.gid) == (base.uid, base.gid);
        if now.kind == Kind::Symlink {
            now.target = self.host.base.readlink(&self.delta.path).ok();
        }
        let mut base = base.clone();
        if now.kind == Kind::File && base.kind == Kind::File && base.size == now.size {
            if base.digest.is_none() {
                let kept = self.host.upper.open_base(&self.delta.path, &base);
                base.digest = kept.and_then(|kept| digest(&kept).ok()).map(|d| d.0);
            }
            now.digest = base.digest.and_then(|_| self.digest_now());
        }
        let content = matches!(now.kind, Kind::File | Kind::Symlink);
        if content && same_owner && base.same_content(&now) {
            return Ok(now);
        }
        Err(self.conflict("was changed on the host meanwhile"))
    }

    /// Whether what lies under a name is the base file (its ctime moves with its name).
    fn is_at(&self, name: &[u8], base: &Version) -> bool {
        self.look_at(name).is_ok_and(|stat| {
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
            Ok(()) => {
                // Between two names of one file a rename does nothing and says that it worked.
                let _ = rustix::fs::unlinkat(&self.dir, self.temp, AtFlags::empty());
                return Ok(());
            }
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
                copy_whole(&File::from(source), &kept)
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

    pub(crate) fn open_path(&self, name: &[u8]) -> Result<OwnedFd, CommitError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::empty()).map_err(self.failed("look at"))
    }
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

pub(crate) fn conflict(delta: &Delta, what: &str) -> CommitError {
    CommitError::Conflict {
        path: path::text(&delta.path),
        what: what.to_string(),
    }
}
