//! Parked bytes, by digest: one file each, private to the owner.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use kernel::Digest;
use sha2::{Digest as _, Sha256};

/// A directory of blobs.
#[derive(Debug)]
pub struct Blobs {
    dir: PathBuf,
    next: AtomicU64,
}

impl Blobs {
    /// Opens or makes the directory.
    ///
    /// # Errors
    /// When it can be neither found nor made.
    pub fn open_dir(dir: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            next: AtomicU64::new(0),
        })
    }

    /// Stores bytes; durable when this returns.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(bytes);
        if self.path(&digest).exists() {
            return Ok(digest);
        }
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
        let path = self.path(&digest);
        if !path.exists() {
            let mut writer = self.writer()?;
            writer.write_all(bytes)?;
            std::fs::rename(&writer.path, &path)?;
            writer.kept = true;
        }
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
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        Ok(BlobWriter {
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
    pub fn open(&self, digest: &Digest) -> io::Result<File> {
        File::open(self.path(digest))
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
        match std::fs::remove_file(self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Where a blob lies.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }
}

/// A blob under way; dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub struct BlobWriter {
    dir: PathBuf,
    path: PathBuf,
    file: File,
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
        self.file.sync_data()?;
        let digest = Digest(std::mem::take(&mut self.hash).finalize().into());
        std::fs::rename(&self.path, self.dir.join(digest.hex()))?;
        self.kept = true;
        File::open(&self.dir)?.sync_all()?;
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
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
