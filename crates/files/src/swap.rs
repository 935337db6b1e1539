//! Renames within one directory that replace nothing: with one `renameat2` where the file system
//! can, else (NFS, some shared folders) in steps that lose nothing.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::{Errno, Result};

/// Gives a file another name that must be free.
pub(crate) fn take_name(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<()> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => take_name_in_steps(dir, from, to),
        other => other,
    }
}

/// Lets two files swap their names.
pub(crate) fn exchange(dir: &OwnedFd, one: &[u8], other: &[u8]) -> Result<()> {
    match rustix::fs::renameat_with(dir, one, dir, other, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => exchange_in_steps(dir, one, other),
        done => done,
    }
}

fn take_name_in_steps(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<()> {
    match rustix::fs::linkat(dir, from, dir, to, AtFlags::empty()) {
        Ok(()) => return rustix::fs::unlinkat(dir, from, AtFlags::empty()),
        Err(Errno::EXIST) => return Err(Errno::EXIST),
        // A directory, or a file system without hard links.
        Err(_) => {}
    }
    match rustix::fs::statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => rustix::fs::renameat(dir, from, dir, to),
        Ok(_) => Err(Errno::EXIST),
        Err(error) => Err(error),
    }
}

fn exchange_in_steps(dir: &OwnedFd, one: &[u8], other: &[u8]) -> Result<()> {
    let aside = [one, b"-x"].concat();
    // With a second link `other` is never missing; a directory is, for a moment.
    if rustix::fs::linkat(dir, other, dir, &*aside, AtFlags::empty()).is_err() {
        take_name_in_steps(dir, other, &aside)?;
    }
    if let Err(error) = rustix::fs::renameat(dir, one, dir, other) {
        let back = rustix::fs::renameat(dir, &*aside, dir, other);
        return Err(back.err().unwrap_or(error));
    }
    rustix::fs::renameat(dir, &*aside, dir, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn open(dir: &std::path::Path) -> OwnedFd {
        fs::File::open(dir).unwrap().into()
    }

    #[test]
    fn in_steps_as_in_one() {
        for (take, swap) in [
            (
                take_name as fn(&OwnedFd, &[u8], &[u8]) -> Result<()>,
                exchange as fn(&OwnedFd, &[u8], &[u8]) -> Result<()>,
            ),
            (take_name_in_steps, exchange_in_steps),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (at, fd) = (|name: &str| dir.path().join(name), open(dir.path()));
            fs::write(at("a"), "a").unwrap();
            fs::write(at("b"), "b").unwrap();
            fs::create_dir(at("d")).unwrap();
            fs::write(at("d/in"), "in").unwrap();
            assert_eq!(take(&fd, b"a", b"b"), Err(Errno::EXIST));
            assert_eq!(take(&fd, b"d", b"b"), Err(Errno::EXIST));
            assert_eq!(take(&fd, b"none", b"c"), Err(Errno::NOENT));
            swap(&fd, b"a", b"b").unwrap();
            assert_eq!(fs::read_to_string(at("a")).unwrap(), "b");
            swap(&fd, b"a", b"d").unwrap();
            assert_eq!(fs::read_to_string(at("a/in")).unwrap(), "in");
            assert_eq!(fs::read_to_string(at("d")).unwrap(), "b");
            assert_eq!(swap(&fd, b"a", b"none"), Err(Errno::NOENT));
            take(&fd, b"a", b"e").unwrap();
            take(&fd, b"b", b"f").unwrap();
            let mut names: Vec<_> = fs::read_dir(dir.path())
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            assert_eq!(names, ["d", "e", "f"]);
        }
    }
}
