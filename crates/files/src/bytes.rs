//! Copies and digests of open files, without moving the positions that handles share.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use kernel::Digest;
use rustix::fs::SeekFrom;
use rustix::io::{Errno, Result};
use sha2::{Digest as _, Sha256};

/// Digest of a file's whole content.
pub(crate) fn digest(file: &File) -> std::io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut reader = AtStart { file, at: 0 };
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(Digest(hash.finalize().into())),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// At most `max` bytes from the beginning of a file.
pub(crate) fn beginning(file: &File, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    AtStart { file, at: 0 }.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Copies a file's bytes, holes as holes where the file system tells them.
pub(crate) fn copy(source: &File, target: &File) -> Result<()> {
    let size = source.metadata().map_err(|e| errno(&e))?.len();
    let mut at = 0;
    while at < size {
        let (from, to) = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(from) => (
                from,
                rustix::fs::seek(source, SeekFrom::Hole(from)).unwrap_or(size),
            ),
            Err(Errno::NXIO) => break,
            Err(_) => (at, size),
        };
        copy_part(source, target, from, to)?;
        at = to;
    }
    target.set_len(size).map_err(|e| errno(&e))
}

/// The error number behind a standard library error.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn copy_part(source: &File, target: &File, from: u64, to: u64) -> Result<()> {
    let (mut off_in, mut off_out) = (from, from);
    while off_in < to {
        let length = usize::try_from(to - off_in)
            .unwrap_or(usize::MAX)
            .min(1 << 30);
        match rustix::fs::copy_file_range(
            source,
            Some(&mut off_in),
            target,
            Some(&mut off_out),
            length,
        ) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return copy_plain(source, target, off_in, to);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy_plain(source: &File, target: &File, from: u64, to: u64) -> Result<()> {
    let mut buffer = vec![0; 128 << 10];
    let mut at = from;
    while at < to {
        let read = source.read_at(&mut buffer, at).map_err(|e| errno(&e))?;
        if read == 0 {
            break;
        }
        target
            .write_all_at(buffer.get(..read).unwrap_or_default(), at)
            .map_err(|e| errno(&e))?;
        at += read as u64;
    }
    Ok(())
}

/// Reads from the beginning, whatever the position.
struct AtStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for AtStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
