//! A FUSE file system with one tree, `work`, holding one file: enough to see that a tree is
//! placed, read by the agent and served from outside.

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Request,
};

pub(crate) const CONTENT: &str = "served from outside\n";

pub(crate) struct OneTree;

const NODES: &[(u64, u64, &str)] = &[(2, 1, "work"), (3, 2, "hello")];

fn attributes(ino: INodeNo) -> Option<FileAttr> {
    let number = u64::from(ino);
    let (kind, perm) = match number {
        1 | 2 => (FileType::Directory, 0o755),
        3 => (FileType::RegularFile, 0o644),
        _ => return None,
    };
    Some(FileAttr {
        ino,
        size: if number == 3 { CONTENT.len() as u64 } else { 0 },
        blocks: 1,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        flags: 0,
        blksize: 4096,
    })
}

impl Filesystem for OneTree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = NODES
            .iter()
            .find(|node| node.1 == u64::from(parent) && OsStr::new(node.2) == name);
        match node.and_then(|node| attributes(INodeNo(node.0))) {
            Some(attributes) => reply.entry(&Duration::ZERO, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attributes(ino) {
            Some(attributes) => reply.attr(&Duration::ZERO, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let children = NODES.iter().filter(|node| node.1 == u64::from(ino));
        for (index, node) in children.enumerate().skip(offset as usize) {
            let kind = if node.0 == 3 {
                FileType::RegularFile
            } else {
                FileType::Directory
            };
            if reply.add(INodeNo(node.0), index as u64 + 1, kind, node.2) {
                break;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let rest = CONTENT
            .as_bytes()
            .get(offset as usize..)
            .unwrap_or_default();
        reply.data(&rest[..rest.len().min(size as usize)]);
    }
}
