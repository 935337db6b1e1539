//! The trees as a FUSE file system: translates the kernel's requests and nothing more. One thread
//! takes requests and answers most of them itself; what has to copy much goes to a small pool.
//!
//! Caching is the kernel's: names, attributes and content stay valid until we say otherwise
//! (`Notifier`), because nobody but the agent and we change the view.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno as FuseErrno, FileAttr, FileHandle, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::acl::{self, Acl};
use crate::attr::Kind;
use crate::beside::{Beside, Turn};
use crate::content::{Change, How};
use crate::fuse_attr::{absent, file_attr, file_type, time_of};
use crate::ids::Ids;
use crate::labels::Labels;
use crate::overlay::{Caller, Found, Overlay, Replace};
use crate::pool::Pool;
use crate::reads::Asker;
use crate::tree::Ino;

/// How long the kernel may believe what it was told; it is told when that ends earlier.
const TTL: Duration = Duration::from_secs(3600);
/// Node number in listings for what was not looked at yet, as libfuse has it.
const UNKNOWN_INO: u64 = 0xffff_ffff;
const READ_HANDLE: u64 = 1;
const WRITE_HANDLE: u64 = 2;

/// The file system that the kernel talks to.
pub(crate) struct Mounted {
    overlay: Arc<Overlay>,
    labels: Arc<Labels>,
    ids: Ids,
    notifier: Arc<Mutex<Option<Notifier>>>,
    pool: Arc<Pool>,
    beside: Beside,
}

impl Mounted {
    pub(crate) fn new(
        overlay: Arc<Overlay>,
        labels: Arc<Labels>,
        ids: Ids,
        notifier: Arc<Mutex<Option<Notifier>>>,
        pool: Arc<Pool>,
        beside: Beside,
    ) -> Self {
        Self {
            overlay,
            labels,
            ids,
            notifier,
            pool,
            beside,
        }
    }

    fn begin(&self, req: &Request) -> (Turn<'_>, Asker) {
        (self.beside.begin(req.pid()), Asker::is(req.pid()))
    }

    fn caller(&self, req: &Request, umask: u32) -> Caller {
        Caller {
            umask,
            uid: self.ids.user_on_host(req.uid()),
            gid: self.ids.group_on_host(req.gid()),
        }
    }

    fn attr(&self, found: &Found) -> FileAttr {
        file_attr(&self.ids, found)
    }

    fn entry(&self, result: Result<Found, Errno>, reply: ReplyEntry) {
        match result {
            Ok(found) => reply.entry(&TTL, &self.attr(&found), Generation(0)),
            Err(error) => reply.error(code(error)),
        }
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let opens = if self.overlay.handleless {
            InitFlags::FUSE_NO_OPEN_SUPPORT
        } else {
            InitFlags::FUSE_ATOMIC_O_TRUNC
        };
        let wanted = opens
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_ASYNC_DIO;
        // An older kernel lacks some; each only makes it faster.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.begin(req);
        match self.overlay.lookup(parent.0, name.as_bytes()) {
            Ok(Some(found)) => reply.entry(&TTL, &self.attr(&found), Generation(0)),
            Ok(None) => reply.entry(&TTL, &absent(), Generation(0)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.overlay.forget(ino.0, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.begin(req);
        match self.overlay.getattr(ino.0) {
            Ok(found) => reply.attr(&TTL, &self.attr(&found)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.begin(req);
        let change = Change {
            mode,
            uid: uid.map(|id| self.ids.user_on_host(id)),
            gid: gid.map(|id| self.ids.group_on_host(id)),
            size,
            atime: atime.map(time_of),
            mtime: mtime.map(time_of),
        };
        match self.overlay.setattr(ino.0, change) {
            Ok(found) => reply.attr(&TTL, &self.attr(&found)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let _turn = self.begin(req);
        match self.overlay.readlink(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(code(error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.begin(req);
        let kind = Kind::of_mode(mode);
        let caller = self.caller(req, umask);
        let made = self
            .overlay
            .create(parent.0, name.as_bytes(), kind, mode, b"", caller);
        self.entry(made, reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.begin(req);
        let caller = self.caller(req, umask);
        let made = self
            .overlay
            .create(parent.0, name.as_bytes(), Kind::Dir, mode, b"", caller);
        self.entry(made, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.begin(req);
        empty(self.overlay.remove(parent.0, name.as_bytes(), false), reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.begin(req);
        empty(self.overlay.remove(parent.0, name.as_bytes(), true), reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _turn = self.begin(req);
        let target = target.as_os_str().as_bytes();
        let (name, caller) = (link_name.as_bytes(), self.caller(req, 0));
        self.entry(
            self.overlay
                .create(parent.0, name, Kind::Symlink, 0o777, target, caller),
            reply,
        );
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.begin(req);
        let replace = match flags {
            RenameFlags::RENAME_NOREPLACE => Replace::No,
            RenameFlags::RENAME_EXCHANGE => Replace::Exchange,
            flags if flags.is_empty() => Replace::Yes,
            _ => return reply.error(FuseErrno::EINVAL),
        };
        let (from, to) = (
            (parent.0, name.as_bytes()),
            (newparent.0, newname.as_bytes()),
        );
        empty(self.overlay.rename(from, to, replace), reply);
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let _turn = self.begin(req);
        self.entry(
            self.overlay.link(ino.0, newparent.0, newname.as_bytes()),
            reply,
        );
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.begin(req);
        if self.overlay.handleless {
            // The kernel does not ask again.
            return reply.error(FuseErrno::ENOSYS);
        }
        let how = How {
            read: flags.acc_mode() != OpenAccMode::O_WRONLY,
            write: flags.acc_mode() != OpenAccMode::O_RDONLY,
            truncate: flags.0 & O_TRUNC != 0,
        };
        let opening = Opening {
            overlay: Arc::clone(&self.overlay),
            labels: Arc::clone(&self.labels),
            notifier: Arc::clone(&self.notifier),
        };
        if self.overlay.copies_much(ino.0, how) {
            let task = req.pid();
            self.pool.run(Box::new(move || {
                let _asker = Asker::is(task);
                opening.open(ino.0, how, reply);
            }));
        } else {
            opening.open(ino.0, how, reply);
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.begin(req);
        let file = match self.readable(ino.0) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let mut buffer = vec![0; size as usize];
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return reply.error(error.into()),
            }
        }
        reply.data(buffer.get(..filled).unwrap_or_default());
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.begin(req);
        let write = How {
            read: false,
            write: true,
            truncate: false,
        };
        if self.overlay.handleless && self.overlay.copies_much(ino.0, write) {
            let (overlay, data) = (Arc::clone(&self.overlay), data.to_vec());
            let task = req.pid();
            let job = move || {
                let _asker = Asker::is(task);
                written(overlay.write(ino.0, offset, &data), data.len(), reply);
            };
            self.pool.run(Box::new(job));
        } else {
            written(self.overlay.write(ino.0, offset, data), data.len(), reply);
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Every write has arrived already; the kernel does not ask again.
        reply.error(FuseErrno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.overlay.release(ino.0, fh.0 == WRITE_HANDLE);
        reply.ok();
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.begin(req);
        if self.overlay.durable {
            empty(self.overlay.sync(ino.0), reply);
        } else {
            // What is staged need not survive a power cut; the kernel does not ask again.
            reply.error(FuseErrno::ENOSYS);
        }
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(FuseErrno::ENOSYS);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Directories need no handle: positions are stable. The kernel does not ask again.
        reply.error(FuseErrno::ENOSYS);
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.begin(req);
        let listed = self
            .overlay
            .list(ino.0, offset, false, &mut |cookie, name, kind, found| {
                let number = found.map_or(UNKNOWN_INO, |found| found.ino);
                let kind = file_type(kind.unwrap_or(Kind::File));
                !reply.add(INodeNo(number), cookie, kind, OsStr::from_bytes(name))
            });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.begin(req);
        let listed = self
            .overlay
            .list(ino.0, offset, true, &mut |cookie, name, _, found| {
                let Some(found) = found else { return true };
                let attr = self.attr(&found);
                let name = OsStr::from_bytes(name);
                !reply.add(INodeNo(found.ino), cookie, name, &TTL, &attr, Generation(0))
            });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        }
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _turn = self.begin(req);
        match self.overlay.statfs(ino.0) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                u32::try_from(s.f_bsize).unwrap_or(4096),
                u32::try_from(s.f_namemax).unwrap_or(255),
                u32::try_from(s.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(code(error)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.begin(req);
        let name = name.as_bytes();
        if acl::is_list(name) {
            let set = match Acl::read(value) {
                Some(list) => self
                    .overlay
                    .set_acl(ino.0, name, Some(list.on_host(&self.ids))),
                None => Err(Errno::INVAL),
            };
            return empty(set, reply);
        }
        if !name.starts_with(b"user.") {
            return reply.error(FuseErrno::EOPNOTSUPP);
        }
        if name == b"user." {
            return reply.error(FuseErrno::EINVAL);
        }
        let there = match self.overlay.xattrs(ino.0) {
            Ok(all) => all.contains_key(name),
            Err(error) => return reply.error(code(error)),
        };
        match (flags & 3, there) {
            (XATTR_CREATE, true) => reply.error(FuseErrno::EEXIST),
            (XATTR_REPLACE, false) => reply.error(FuseErrno::ENODATA),
            _ => empty(self.overlay.set_xattr(ino.0, name, Some(value)), reply),
        }
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.begin(req);
        let name = name.as_bytes();
        if acl::is_list(name) {
            return match self.overlay.acl(ino.0, name) {
                Ok(Some(list)) => sized(&list.inside(&self.ids).write(), size, reply),
                Ok(None) => reply.error(FuseErrno::ENODATA),
                Err(error) => reply.error(code(error)),
            };
        }
        if name.starts_with(b"system.") {
            return reply.error(FuseErrno::EOPNOTSUPP);
        }
        if !name.starts_with(b"user.") {
            return reply.error(FuseErrno::ENODATA);
        }
        match self.overlay.xattrs(ino.0) {
            Ok(all) => match all.get(name) {
                Some(value) => sized(value, size, reply),
                None => reply.error(FuseErrno::ENODATA),
            },
            Err(error) => reply.error(code(error)),
        }
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.begin(req);
        match self.overlay.xattrs(ino.0) {
            Ok(all) => {
                let mut names = Vec::new();
                for name in all.keys() {
                    names.extend_from_slice(name);
                    names.push(0);
                }
                sized(&names, size, reply);
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.begin(req);
        let name = name.as_bytes();
        if acl::is_list(name) {
            return empty(self.overlay.set_acl(ino.0, name, None), reply);
        }
        if !name.starts_with(b"user.") {
            return reply.error(FuseErrno::ENODATA);
        }
        empty(self.overlay.set_xattr(ino.0, name, None), reply);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.begin(req);
        let (name, caller) = (name.as_bytes(), self.caller(req, umask));
        let write = flags & O_ACCMODE != 0;
        let made = match self
            .overlay
            .create(parent.0, name, Kind::File, mode, b"", caller)
        {
            Ok(found) if self.overlay.handleless => Ok(found),
            Ok(found) => self.overlay.open_created(found.ino).map(|()| found),
            // Another name in the kernel's cache was out of date.
            Err(Errno::EXIST) if flags & O_EXCL == 0 => self.reopen(parent.0, name, write, flags),
            Err(error) => Err(error),
        };
        match made {
            Ok(found) => reply.created(
                &TTL,
                &self.attr(&found),
                Generation(0),
                FileHandle(WRITE_HANDLE),
                FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
            ),
            Err(error) => reply.error(code(error)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.begin(req);
        let mode = u32::try_from(mode).unwrap_or(u32::MAX);
        empty(self.overlay.allocate(ino.0, mode, offset, length), reply);
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.begin(req);
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(FuseErrno::ENXIO);
        };
        match self.overlay.seek(ino.0, offset, whence == SEEK_DATA) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.begin(req);
        let length = usize::try_from(len).unwrap_or(usize::MAX).min(1 << 30);
        if self.overlay.handleless
            && let Err(error) = self.readable(ino_in.0)
        {
            return reply.error(error);
        }
        match self
            .overlay
            .copy_range((ino_in.0, offset_in), (ino_out.0, offset_out), length)
        {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(code(error)),
        }
    }
}

impl Mounted {
    /// What a read reads from, after it was reported if it is news.
    fn readable(&self, ino: Ino) -> Result<Arc<File>, FuseErrno> {
        let (file, report) = self.overlay.readable(ino).map_err(code)?;
        if let Some(report) = report {
            self.labels.report(report)?;
        }
        Ok(file)
    }

    fn reopen(&self, parent: Ino, name: &[u8], write: bool, flags: i32) -> Result<Found, Errno> {
        let found = self.overlay.lookup(parent, name)?.ok_or(Errno::NOENT)?;
        let truncate = write && flags & O_TRUNC != 0;
        if self.overlay.handleless {
            let empty = Change {
                size: truncate.then_some(0),
                ..Change::default()
            };
            return match truncate {
                true => self.overlay.setattr(found.ino, empty),
                false => self.overlay.getattr(found.ino),
            };
        }
        // The handle is one for writing in any case, so that its release counts right.
        let how = How {
            read: flags & O_ACCMODE != O_WRONLY,
            write: true,
            truncate,
        };
        let opened = self.overlay.open(found.ino, how)?;
        if let Some(report) = opened.report {
            self.labels.report(report).map_err(|_| Errno::IO)?;
        }
        self.overlay.getattr(found.ino)
    }
}

// Values of Linux on the architectures we build for; fuser hands flags through as they are.
const O_ACCMODE: i32 = 0o3;
const O_WRONLY: i32 = 0o1;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const SEEK_DATA: i32 = 3;

/// What an open needs, also in another thread.
struct Opening {
    overlay: Arc<Overlay>,
    labels: Arc<Labels>,
    notifier: Arc<Mutex<Option<Notifier>>>,
}

impl Opening {
    fn open(&self, ino: Ino, how: How, reply: ReplyOpen) {
        let write = how.write || how.truncate;
        let opened = match self.overlay.open(ino, how) {
            Ok(opened) => opened,
            Err(error) => return reply.error(code(error)),
        };
        if let Some(Err(error)) = opened.report.map(|report| self.labels.report(report)) {
            self.overlay.release(ino, write);
            return reply.error(error.into());
        }
        let handle = if write { WRITE_HANDLE } else { READ_HANDLE };
        let mut flags = FopenFlags::FOPEN_NOFLUSH;
        if opened.keep_cache {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        } else if let Some(notifier) = self.notifier.lock().as_ref() {
            // Another size, too. Attributes only: pages could wait for an answer of this thread.
            let _ = notifier.inval_inode(INodeNo(ino), -1, 0);
        }
        reply.opened(FileHandle(handle), flags);
    }
}

fn code(error: Errno) -> FuseErrno {
    FuseErrno::from_i32(error.raw_os_error())
}

fn written(result: Result<(), Errno>, bytes: usize, reply: ReplyWrite) {
    match result {
        Ok(()) => reply.written(u32::try_from(bytes).unwrap_or(u32::MAX)),
        Err(error) => reply.error(code(error)),
    }
}

fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(code(error)),
    }
}

fn sized(value: &[u8], size: u32, reply: ReplyXattr) {
    if size == 0 {
        reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX));
    } else if value.len() > size as usize {
        reply.error(FuseErrno::ERANGE);
    } else {
        reply.data(value);
    }
}
