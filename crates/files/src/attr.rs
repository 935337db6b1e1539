//! What a file is besides its content: kind, mode, owner, times; and which version of a base
//! file was seen.

use std::collections::BTreeMap;

use kernel::Digest;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::delta::New;

/// Kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket; lives inside only.
    Socket,
    /// Device node of the base; cannot be opened.
    Device,
}

impl Kind {
    /// From the file type bits of a mode.
    pub(crate) fn of_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o040_000 => Self::Dir,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => Self::Device,
        }
    }

    /// The word for it in fields and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Dir => "dir",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}

/// A time stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds.
    pub nanos: u32,
}

impl Time {
    pub(crate) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Self {
            secs: now.tv_sec,
            nanos: u32::try_from(now.tv_nsec).unwrap_or(0),
        }
    }

    pub(crate) fn spec(self) -> rustix::fs::Timespec {
        rustix::fs::Timespec {
            tv_sec: self.secs,
            tv_nsec: self.nanos.into(),
        }
    }
}

/// Attributes of a node. Owner ids are those of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) nlink: u32,
    pub(crate) rdev: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Attr {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            rdev: stat.st_rdev,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    pub(crate) fn fresh(mode: u32, uid: u32, gid: u32, nlink: u32) -> Self {
        let now = Time::now();
        let mode = mode & 0o7777;
        Self {
            mode,
            uid,
            gid,
            size: 0,
            blocks: 0,
            nlink,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
        }
    }
}

fn time(secs: impl TryInto<i64>, nanos: impl TryInto<u32>) -> Time {
    Time {
        secs: secs.try_into().unwrap_or(0),
        nanos: nanos.try_into().unwrap_or(0),
    }
}

/// Which version of a base file it is: enough to notice that its owner changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Kind of file.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Device.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Number of its names.
    pub links: u32,
    /// Where a symbolic link points.
    pub target: Option<Vec<u8>>,
    /// Digest of the content, once it was read.
    pub digest: Option<[u8; 32]>,
    /// `user.` attributes, when a change replaces them.
    pub xattrs: Option<Xattrs>,
}

/// Extended attributes by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        let attr = Attr::of(stat);
        Self {
            kind: Kind::of_mode(stat.st_mode),
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime: attr.mtime,
            ctime: attr.ctime,
            dev: stat.st_dev,
            ino: stat.st_ino,
            links: attr.nlink,
            target: None,
            digest: None,
            xattrs: None,
        }
    }

    /// Whether nothing tells the two apart without reading them. A directory's times and size
    /// change with its entries, which have versions of their own.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.mode == other.mode
            && self.ino == other.ino
            && self.dev == other.dev
            && (self.kind == Kind::Dir
                || (self.size == other.size
                    && self.mtime == other.mtime
                    && self.ctime == other.ctime))
    }

    /// Whether the content can be told to be the same, although ctime differs (a hard link made,
    /// an owner changed): by digest, for links by target.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.mode == other.mode
            && match self.kind {
                Kind::File => self.digest.is_some() && self.digest == other.digest,
                Kind::Symlink => self.target.is_some() && self.target == other.target,
                _ => true,
            }
    }

    /// What was just put in place: its content is known, if nobody has changed it since.
    pub(crate) fn is_now(&mut self, new: &New) {
        if self.kind == Kind::File
            && (self.kind, self.size, self.mtime) == (new.kind, new.size, new.mtime)
        {
            self.digest = Some(new.digest);
        }
    }

    /// The digest that stands for the base in a manifest.
    pub(crate) fn manifest_digest(&self) -> Digest {
        let mut hash = Sha256::new();
        hash.update(format!(
            "kairos/base/1 {} {:o} ",
            self.kind.name(),
            self.mode
        ));
        match (&self.digest, &self.target) {
            (Some(digest), _) => hash.update(digest),
            (None, Some(target)) => hash.update(target),
            (None, None) if self.kind == Kind::File => {
                hash.update(format!(
                    "unread {} {:?} {}",
                    self.size, self.mtime, self.ino
                ));
            }
            (None, None) => {}
        }
        Digest(hash.finalize().into())
    }
}
