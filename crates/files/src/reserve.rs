//! Room on the disk that is kept free for records of what makes room: on a full disk a program can
//! still remove a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Enough for a thousand removals.
const BYTES: u64 = 64 << 10;
/// After so many records it is tried to get it back.
const AGAIN_AFTER: u32 = 64;

/// A file that holds the room.
#[derive(Debug)]
pub(crate) struct Reserve {
    file: File,
    held: bool,
    /// Records since it was given up or could not be had.
    since: u32,
}

impl Reserve {
    /// Opens or makes it; on a disk that is full already there is none for now.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        let mut reserve = Self {
            file,
            held: false,
            since: 0,
        };
        reserve.take();
        Ok(reserve)
    }

    /// Gives the room to whoever writes next; says whether there was any.
    pub(crate) fn give_up(&mut self) -> bool {
        let held = self.held && self.file.set_len(0).is_ok();
        self.held = false;
        self.since = 0;
        held
    }

    /// A record was written: perhaps there is room again.
    pub(crate) fn after_record(&mut self) {
        if !self.held {
            self.since += 1;
            if self.since >= AGAIN_AFTER {
                self.take();
            }
        }
    }

    fn take(&mut self) {
        self.since = 0;
        let taken = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, BYTES);
        self.held = match taken {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                (&self.file).write_all(&vec![0; BYTES as usize]).is_ok()
            }
            other => other.is_ok(),
        };
        if !self.held {
            let _ = self.file.set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_up_once_and_taken_again_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let mut reserve = Reserve::open(&path).unwrap();
        let len = || path.metadata().unwrap().len();
        assert_eq!(len(), BYTES);
        assert!(reserve.give_up());
        assert!(!reserve.give_up());
        assert_eq!(len(), 0);
        for _ in 1..AGAIN_AFTER {
            reserve.after_record();
            assert_eq!(len(), 0);
        }
        reserve.after_record();
        assert_eq!(len(), BYTES);
    }
}
