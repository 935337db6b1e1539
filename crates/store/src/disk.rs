//! The disk as the store uses it: every byte of the log, the parked bytes and the session
//! directories goes through [`Disk`], so that the product, `kairos decide` (which keeps everything
//! in memory) and the simulation (whose disk fails) run the same code.
//!
//! What a disk promises is what POSIX promises after a power cut and no more: bytes are kept once
//! [`Append::sync`] has returned, names once [`Disk::sync_dir`] has.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place for files. Everything made is private to the owner.
///
/// Errors are those of the operating system; a missing file is [`io::ErrorKind::NotFound`], one
/// that is in the way [`io::ErrorKind::AlreadyExists`].
pub trait Disk: Debug + Send + Sync {
    /// Makes a directory and those above it; they may be there.
    ///
    /// # Errors
    /// When it is neither there nor can be made.
    fn make_dirs(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory that must not be there.
    ///
    /// # Errors
    /// When it is there, or cannot be made.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates a file that must not be there.
    ///
    /// # Errors
    /// When it is there, or cannot be made.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>>;

    /// Opens a file that is there, to write behind its end.
    ///
    /// # Errors
    /// When it is not there, or not ours to write.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Append>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// When it is not there, or not ours to read.
    fn read(&self, path: &Path) -> io::Result<Box<dyn ReadSeek>>;

    /// Whether there is a file or directory of that name.
    fn contains(&self, path: &Path) -> bool;

    /// Gives a file another name, at once, in place of what had that name.
    ///
    /// # Errors
    /// When it is not there, or the disk says no.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// When it is not there, or the disk says no.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, in no order.
    ///
    /// # Errors
    /// When it is not there, or not ours to read.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Makes names made, changed or removed in a directory durable.
    ///
    /// # Errors
    /// When the disk does not confirm.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file open for writing behind its end.
pub trait Append: Write + Debug + Send {
    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// When the disk does not confirm; what is durable is then unknown.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts everything behind this many bytes off.
    ///
    /// # Errors
    /// When the disk says no.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// A file open for reading.
pub trait ReadSeek: Read + Seek + Debug + Send {}

impl<T: Read + Seek + Debug + Send> ReadSeek for T {}

/// The file system of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl OsDisk {
    /// One to share.
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self)
    }
}

impl Disk for OsDisk {
    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        Ok(Box::new(OpenOptions::new().append(true).open(path)?))
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn ReadSeek>> {
        Ok(Box::new(File::open(path)?))
    }

    fn contains(&self, path: &Path) -> bool {
        path.exists()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl Append for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// Files in memory, for sessions that end with their process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    tree: Arc<Mutex<Tree>>,
}

#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, Bytes>,
    dirs: BTreeSet<PathBuf>,
}

/// The bytes of one file: shared by the tree and by who has it open.
type Bytes = Arc<Mutex<Vec<u8>>>;

impl MemoryDisk {
    /// An empty one to share.
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self::default())
    }

    /// What a file holds now.
    ///
    /// # Errors
    /// When it is not there.
    pub fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.file(path)?;
        let bytes = lock(&file).clone();
        Ok(bytes)
    }

    fn file(&self, path: &Path) -> io::Result<Bytes> {
        lock(&self.tree)
            .files
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        tree.dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        if lock(&self.tree).dirs.insert(path.to_path_buf()) {
            Ok(())
        } else {
            Err(io::ErrorKind::AlreadyExists.into())
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let mut tree = lock(&self.tree);
        if tree.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let bytes = Bytes::default();
        tree.files.insert(path.to_path_buf(), Arc::clone(&bytes));
        Ok(Box::new(MemoryFile { bytes }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let bytes = self.file(path)?;
        Ok(Box::new(MemoryFile { bytes }))
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn ReadSeek>> {
        Ok(Box::new(io::Cursor::new(self.bytes(path)?)))
    }

    fn contains(&self, path: &Path) -> bool {
        let tree = lock(&self.tree);
        tree.files.contains_key(path) || tree.dirs.contains(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let bytes = tree.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        tree.files.insert(to.to_path_buf(), bytes);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match lock(&self.tree).files.remove(path) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let tree = lock(&self.tree);
        if !tree.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(tree
            .files
            .keys()
            .chain(&tree.dirs)
            .filter(|name| name.parent() == Some(path))
            .filter_map(|name| name.file_name().map(OsString::from))
            .collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    bytes: Bytes,
}

impl Write for MemoryFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        lock(&self.bytes).extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Append for MemoryFile {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        lock(&self.bytes).truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole operations only are done under the lock, so a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both disks answer alike.
    #[test]
    fn memory_is_like_the_file_system() {
        for disk in [OsDisk::shared(), MemoryDisk::shared()] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("a/b");
            let at = |name: &str| root.join(name);
            disk.make_dirs(&root).unwrap();
            disk.make_dirs(&root).unwrap();
            disk.make_dir(&at("c")).unwrap();
            let kind = disk.make_dir(&at("c")).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::AlreadyExists, "{disk:?}");

            let mut file = disk.create(&at("f")).unwrap();
            file.write_all(b"one two").unwrap();
            file.cut(4).unwrap();
            file.write_all(b"three").unwrap();
            file.sync().unwrap();
            drop(file);
            let kind = disk.create(&at("f")).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::AlreadyExists, "{disk:?}");
            disk.append(&at("f")).unwrap().write_all(b"!").unwrap();
            let mut text = String::new();
            let mut reader = disk.read(&at("f")).unwrap();
            reader.seek(io::SeekFrom::Start(4)).unwrap();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "three!", "{disk:?}");

            disk.create(&at("g")).unwrap();
            disk.rename(&at("f"), &at("g")).unwrap();
            disk.sync_dir(&root).unwrap();
            assert!(!disk.contains(&at("f")) && disk.contains(&at("g")));
            assert!(disk.contains(&at("c")), "{disk:?}");
            let mut names = disk.list(&root).unwrap();
            names.sort();
            assert_eq!(names, ["c", "g"], "{disk:?}");
            disk.remove(&at("g")).unwrap();
            for error in [
                disk.remove(&at("g")).unwrap_err(),
                disk.read(&at("g")).unwrap_err(),
                disk.append(&at("g")).unwrap_err(),
                disk.rename(&at("g"), &at("h")).unwrap_err(),
                disk.list(&at("no")).unwrap_err(),
            ] {
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{disk:?}");
            }
        }
    }
}
