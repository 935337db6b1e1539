//! Room on the disk that is kept free for records of what makes room: on a full disk a program can
//! still remove a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Enough for a thousand removals.
const BYTES: u64 = 64 << 10;
/// So much is given at once: what is given anybody may take, and only part of it is needed for a record.
const PIECE: u64 = 4 << 10;
/// Nothing is taken where less than this is free.
const ROOM_MIN: u64 = 1 << 20;
/// After so many records it is tried to get it back.
const AGAIN_AFTER: u32 = 64;

/// A file that holds the room.
#[derive(Debug)]
pub(crate) struct Reserve {
    file: File,
    held: u64,
    /// Records since some of it was given or could not be had.
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
            held: 0,
            since: 0,
        };
        reserve.take();
        Ok(reserve)
    }

    /// Gives some of the room to whoever writes next; says whether there was any.
    pub(crate) fn give(&mut self) -> bool {
        self.since = 0;
        let Some(rest) = self.held.checked_sub(PIECE) else {
            return false;
        };
        self.held = rest;
        self.file.set_len(rest).is_ok()
    }

    /// A record was written: perhaps there is room again.
    pub(crate) fn after_record(&mut self) {
        if self.held < BYTES {
            self.since += 1;
            if self.since >= AGAIN_AFTER {
                self.take();
            }
        }
    }

    fn take(&mut self) {
        self.since = 0;
        // What little there is on a nearly full disk is for work that has begun.
        let room = rustix::fs::fstatvfs(&self.file).map_or(0, |disk| disk.f_bavail * disk.f_frsize);
        if room < ROOM_MIN {
            return;
        }
        let taken = match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, BYTES) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let zeros = [0; PIECE as usize];
                (0..BYTES / PIECE)
                    .all(|piece| self.file.write_all_at(&zeros, piece * PIECE).is_ok())
            }
            other => other.is_ok(),
        };
        if taken {
            self.held = BYTES;
        } else {
            let _ = self.file.set_len(self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_in_pieces_and_taken_again_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let mut reserve = Reserve::open(&path).unwrap();
        let len = || path.metadata().unwrap().len();
        assert_eq!(len(), BYTES);
        for given in 1..=BYTES / PIECE {
            assert!(reserve.give());
            assert_eq!(len(), BYTES - given * PIECE);
        }
        assert!(!reserve.give());
        for _ in 1..AGAIN_AFTER {
            reserve.after_record();
            assert_eq!(len(), 0);
        }
        reserve.after_record();
        assert_eq!(len(), BYTES);
    }
}
