//! Attributes and times in the kernel's form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

use crate::attr::{Kind, Time};
use crate::ids::Ids;
use crate::overlay::Found;

pub(crate) fn file_attr(ids: &Ids, found: &Found) -> FileAttr {
    let attr = &found.attr;
    FileAttr {
        ino: INodeNo(found.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(found.kind),
        perm: u16::try_from(attr.mode & 0o7777).unwrap_or(0),
        nlink: attr.nlink,
        uid: ids.user_inside(attr.uid),
        gid: ids.group_shown(attr.uid, attr.gid),
        rdev: u32::try_from(attr.rdev).unwrap_or(0),
        blksize: 4096,
        flags: 0,
    }
}

/// Tells the kernel that a name is not there, so that it does not ask again.
pub(crate) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Device => FileType::CharDevice,
    }
}

fn system_time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    match u64::try_from(time.secs) {
        Ok(secs) => UNIX_EPOCH + Duration::from_secs(secs) + nanos,
        Err(_) => UNIX_EPOCH - Duration::from_secs(time.secs.unsigned_abs()) + nanos,
    }
}

pub(crate) fn time_of(time: TimeOrNow) -> Time {
    let TimeOrNow::SpecificTime(time) = time else {
        return Time::now();
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        // fuser 0.18 takes the nanoseconds away as well, though they count up from the second.
        Err(before) => Time {
            secs: -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
            nanos: before.duration().subsec_nanos(),
        },
    }
}
