//! Small steps on mounts and paths, each on descriptors.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::sys;

pub(super) fn file_system(
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

pub(super) fn tmpfs(mode: u32, bytes_max: Option<u64>) -> rustix::io::Result<OwnedFd> {
    let mode = format!("{mode:o}");
    let size = bytes_max.map(|size| size.to_string());
    let mut options = vec![("mode", Some(mode.as_str()))];
    if let Some(size) = &size {
        options.push(("size", Some(size)));
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    file_system("tmpfs", &options, flags)
}

pub(super) fn set_read_only(mount: &OwnedFd, recursive: bool) -> std::io::Result<()> {
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::mount_setattr(mount, attributes, recursive)
}

pub(super) fn raw(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

pub(super) fn open_path(directory: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        directory,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Opens a path as if `root` were `/`.
pub(super) fn open_in(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

pub(super) fn is_directory(fd: &OwnedFd) -> rustix::io::Result<bool> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// A copy of the mount tree at a path, unattached.
pub(super) fn clone(path: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(path, c"", flags)
}

pub(super) fn clone_at(directory: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    clone(&open_path(directory.as_fd(), path)?)
}

pub(super) fn clone_at_name(directory: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    clone(&rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

pub(super) fn move_onto(mount: &OwnedFd, to: impl AsFd, path: &Path) -> rustix::io::Result<()> {
    let path = if path == Path::new("/") {
        path
    } else {
        path.strip_prefix("/").unwrap_or(path)
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", to, path, flags)
}

pub(super) fn move_to_name(mount: &OwnedFd, to: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    rustix::mount::move_mount(
        mount,
        c"",
        to,
        name,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

pub(super) fn attach_to(mount: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", target, c"", flags)
}

pub(super) fn make_file(
    directory: &OwnedFd,
    name: &OsStr,
    mode: u32,
    content: &[u8],
) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode))?;
    write_all(&file, content)
}

pub(super) fn write_all(file: &OwnedFd, mut content: &[u8]) -> rustix::io::Result<()> {
    while !content.is_empty() {
        let written = rustix::io::write(file, content)?;
        content = content.get(written..).unwrap_or_default();
    }
    Ok(())
}
