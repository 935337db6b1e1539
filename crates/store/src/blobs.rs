//! Parked bytes, by digest: one file each, private to the owner.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::Digest;
use kernel::planted::{self, Bug};
use sha2::{Digest as _, Sha256};

use crate::disk::{Append, Disk, OsDisk, ReadSeek};

/// A directory of blobs.
#[derive(Debug)]
pub struct Blobs {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    next: AtomicU64,
    /// Some of those that are there, so that the disk need not be asked.
    there: Mutex<HashSet<Digest>>,
}

/// So many are remembered.
const THERE_MAX: usize = 4096;

impl Blobs {
    /// Opens or makes the directory.
    ///
    /// # Errors
    /// When it can be neither found nor made.
    pub fn open_dir(dir: &Path) -> io::Result<Self> {
        Self::open_dir_on(&OsDisk::shared(), dir)
    }

    /// As [`Blobs::open_dir`], on another disk than the host's.
    ///
    /// # Errors
    /// When it can be neither found nor made.
    pub fn open_dir_on(disk: &Arc<dyn Disk>, dir: &Path) -> io::Result<Self> {
        disk.make_dirs(dir)?;
        Ok(Self {
            disk: Arc::clone(disk),
            dir: dir.to_path_buf(),
            next: AtomicU64::new(0),
            there: Mutex::default(),
        })
    }

    /// Stores bytes; durable when this returns.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Digest> {
        // Written anew also when it is there: what is there may not be durable, or not whole.
        let mut writer = self.writer()?;
        writer.write_all(bytes)?;
        Ok(writer.finish()?.0)
    }

    /// Stores bytes that need not survive a power cut (evidence, not effects).
    ///
    /// # Errors
    /// When the disk says no.
    pub fn put_soon(&self, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(bytes);
        if self.there().contains(&digest) {
            return Ok(digest);
        }
        let path = self.path(&digest);
        if !self.disk.contains(&path) {
            let mut writer = self.writer()?;
            writer.file.write_all(bytes)?;
            self.disk.rename(&writer.path, &path)?;
            writer.kept = true;
        }
        let mut there = self.there();
        if there.len() >= THERE_MAX {
            there.clear();
        }
        there.insert(digest);
        Ok(digest)
    }

    /// Starts a blob whose bytes come piece by piece.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn writer(&self) -> io::Result<BlobWriter> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self
            .dir
            .join(format!("part-{}-{number}", std::process::id()));
        let file = self.disk.create(&path)?;
        Ok(BlobWriter {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            path,
            file,
            hash: Sha256::new(),
            bytes: 0,
            kept: false,
        })
    }

    /// Opens a blob for reading.
    ///
    /// # Errors
    /// When it is not there.
    pub fn open(&self, digest: &Digest) -> io::Result<Box<dyn ReadSeek>> {
        self.disk.read(&self.path(digest))
    }

    /// A whole blob, checked against its digest.
    ///
    /// # Errors
    /// When it is not there, or not what it should be.
    pub fn read(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(digest)?.read_to_end(&mut bytes)?;
        if Digest::of(&bytes) == *digest {
            Ok(bytes)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("parked bytes {} were changed", digest.hex()),
            ))
        }
    }

    /// Removes a blob; it may be gone already.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn remove(&self, digest: &Digest) -> io::Result<()> {
        self.there().remove(digest);
        match self.disk.remove(&self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn there(&self) -> MutexGuard<'_, HashSet<Digest>> {
        // Whole operations only are done under the lock, so a panic elsewhere leaves it sound.
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a blob lies.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }
}

/// A blob under way; dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub struct BlobWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    path: PathBuf,
    file: Box<dyn Append>,
    hash: Sha256,
    bytes: u64,
    kept: bool,
}

impl BlobWriter {
    /// Makes it durable under its digest; returns that and the number of bytes.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn finish(mut self) -> io::Result<(Digest, u64)> {
        if !planted::is(Bug::ParkedSoon) {
            self.file.sync()?;
        }
        let digest = Digest(std::mem::take(&mut self.hash).finalize().into());
        self.disk.rename(&self.path, &self.dir.join(digest.hex()))?;
        self.kept = true;
        self.disk.sync_dir(&self.dir)?;
        Ok((digest, self.bytes))
    }
}

impl Write for BlobWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hash.update(buffer.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if !self.kept {
            // Best effort: an unfinished part is recognised by its name anyway.
            let _ = self.disk.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_stored_again() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open_dir(dir.path()).unwrap();
        for _ in 0..2 {
            let digest = blobs.put_soon(b"evidence").unwrap();
            assert_eq!(blobs.put_soon(b"evidence").unwrap(), digest);
            assert_eq!(blobs.read(&digest).unwrap(), b"evidence");
            blobs.remove(&digest).unwrap();
            assert!(blobs.read(&digest).is_err());
        }
    }

    #[test]
    fn more_than_is_remembered_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let disk = crate::MemoryDisk::shared();
        let blobs = Blobs::open_dir_on(&disk, dir.path()).unwrap();
        let numbers = 0..THERE_MAX as u64 + 10;
        for number in numbers.clone().chain(0..20) {
            blobs.put_soon(&number.to_le_bytes()).unwrap();
        }
        for number in numbers {
            let bytes = number.to_le_bytes();
            assert_eq!(blobs.read(&Digest::of(&bytes)).unwrap(), bytes);
        }
    }
}
