//! Directories that their own owner may not write, as Go's module cache is made of: for the time of a
//! commit they may. What the mode was is durable in the journal before it changes, so that after a
//! crash it comes back; whoever looks through [`Base`](crate::base::Base) meanwhile sees it as it was.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

use crate::attr::Version;
use crate::bytes;
use crate::commit::{CommitError, Host};
use crate::path::{Rel, split};
use crate::upper::{Entry, read};

/// What an owner needs of a directory to change names in it.
const OWNER_ALL: u32 = 0o700;
const WRITE_AND_SEARCH: u32 = 0o300;

/// Directories with another mode than they are meant to have, by device and inode.
#[derive(Debug, Default)]
pub(crate) struct Lifted {
    any: AtomicBool,
    dirs: Mutex<HashMap<(u64, u64), Lift>>,
}

#[derive(Debug)]
struct Lift {
    path: Rel,
    /// The mode that it is meant to have.
    mode: u32,
    /// It, wherever its owner moves it.
    dir: OwnedFd,
}

impl Lifted {
    /// What was looked at, with the mode that it is meant to have.
    pub(crate) fn as_meant(&self, mut stat: Stat) -> Stat {
        if self.any.load(Ordering::Acquire)
            && let Some(lift) = self.dirs.lock().get(&key(&stat))
            && is_lifted(&stat, lift.mode)
        {
            stat.st_mode = (stat.st_mode & !0o7777) | lift.mode;
        }
        stat
    }

    fn insert(&self, stat: &Stat, lift: Lift) {
        self.dirs.lock().insert(key(stat), lift);
        self.any.store(true, Ordering::Release);
    }

    fn remove(&self, stat: &Stat) -> Option<Lift> {
        let mut dirs = self.dirs.lock();
        let lift = dirs.remove(&key(stat));
        self.any.store(!dirs.is_empty(), Ordering::Release);
        lift
    }

    fn all(&self) -> HashMap<(u64, u64), Lift> {
        let mut dirs = self.dirs.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *dirs)
    }
}

impl Host {
    /// A directory as it is now, also when one above may not be searched.
    pub(crate) fn dir_of(&self, path: &[u8]) -> std::result::Result<OwnedFd, Trouble> {
        match self.base.dir_now(path) {
            Err(Errno::ACCESS) => {}
            other => return Ok(other?),
        }
        let mut above: Vec<&[u8]> = Vec::new();
        let mut at = path;
        while let Some((parent, _)) = split(at) {
            above.push(parent);
            at = parent;
        }
        for parent in above.into_iter().rev() {
            self.lift(parent, &self.base.dir_now(parent)?)?;
        }
        Ok(self.base.dir_now(path)?)
    }

    /// Lets the owner change names in a directory of theirs until [`Host::lower`].
    pub(crate) fn lift(&self, path: &[u8], dir: &OwnedFd) -> std::result::Result<(), Trouble> {
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        if rustix::fs::accessat(dir, ".", wanted, AtFlags::EACCESS) != Err(Errno::ACCESS) {
            // What else is in the way is told by what is tried next.
            return Ok(());
        }
        let stat = rustix::fs::fstat(dir)?;
        let mode = stat.st_mode & 0o7777;
        if stat.st_uid != rustix::process::geteuid().as_raw()
            || mode & WRITE_AND_SEARCH == WRITE_AND_SEARCH
        {
            return Ok(());
        }
        (self.steps)("lift").map_err(Trouble::Stopped)?;
        let version = Version::of(&stat);
        self.upper.append(&Entry::Lifted {
            path: path.to_vec(),
            dev: version.dev,
            ino: version.ino,
            mode,
        })?;
        self.upper.sync().map_err(|e| bytes::errno(&e))?;
        let lift = Lift {
            path: path.to_vec(),
            mode,
            dir: rustix::io::fcntl_dupfd_cloexec(dir, 0)?,
        };
        self.base.lifted.insert(&stat, lift);
        let changed = chmod(dir, mode | OWNER_ALL);
        if changed.is_err() {
            self.base.lifted.remove(&stat);
        }
        Ok(changed?)
    }

    /// Gives all of them their modes back.
    pub(crate) fn lower(&self) -> std::result::Result<(), CommitError> {
        for lift in self.base.lifted.all().into_values() {
            (self.steps)("lower")?;
            if let Err(error) = self.lower_one(&lift) {
                let path = crate::path::text(&lift.path);
                tracing::warn!(
                    "cannot set the mode of `{path}` back to {:04o}: {error}",
                    lift.mode
                );
            }
        }
        Ok(())
    }

    fn lower_one(&self, lift: &Lift) -> Result<()> {
        let stat = rustix::fs::fstat(&lift.dir)?;
        // Another mode was given to it meanwhile, by its owner.
        if is_lifted(&stat, lift.mode) {
            // Afterwards it may not be readable.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = rustix::fs::openat(&lift.dir, ".", flags, Mode::empty());
            chmod(&lift.dir, lift.mode)?;
            rustix::fs::fsync(open?)?;
        }
        self.lowered(&stat)
    }

    /// A directory was given the mode that it is to have.
    pub(crate) fn has_its_mode(&self, stat: &Stat) -> Result<()> {
        match self.base.lifted.remove(stat) {
            Some(_) => self.lowered(stat),
            None => Ok(()),
        }
    }

    fn lowered(&self, stat: &Stat) -> Result<()> {
        let (dev, ino) = key(stat);
        self.upper.append(&Entry::Lowered { dev, ino })
    }

    /// Takes up what an earlier process lifted and did not lower.
    pub(crate) fn remember_lifted(&self) -> std::io::Result<()> {
        let mut open: HashMap<(u64, u64), (Rel, u32)> = HashMap::new();
        for entry in read(self.upper.dir())? {
            match entry {
                Entry::Lifted {
                    path,
                    dev,
                    ino,
                    mode,
                } => drop(open.insert((dev, ino), (path, mode))),
                Entry::Lowered { dev, ino } => drop(open.remove(&(dev, ino))),
                _ => {}
            }
        }
        let mut open: Vec<_> = open.into_iter().collect();
        open.sort_by(|(_, (one, _)), (_, (other, _))| one.cmp(other));
        for (known, (path, mode)) in open {
            let Ok(dir) = self.base.dir_now(&path) else {
                continue;
            };
            let Ok(stat) = rustix::fs::fstat(&dir) else {
                continue;
            };
            if key(&stat) == known {
                self.base.lifted.insert(&stat, Lift { path, mode, dir });
            }
        }
        Ok(())
    }
}

/// Why a directory cannot be reached or lifted.
#[derive(Debug)]
pub(crate) enum Trouble {
    System(Errno),
    /// A test stopped it there.
    Stopped(CommitError),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

fn key(stat: &Stat) -> (u64, u64) {
    let version = Version::of(stat);
    (version.dev, version.ino)
}

fn is_lifted(stat: &Stat, mode: u32) -> bool {
    stat.st_mode & 0o7777 == mode | OWNER_ALL
}

fn chmod(dir: &OwnedFd, mode: u32) -> Result<()> {
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))
}
