//! The disk form of what is staged: `journal`, one record an operation, appended before the agent
//! gets its answer, and `data/N`, one file a staged content. Enough for another process to rebuild
//! the agent's view after a kill at any instant. Paths in records are those of the agent's view at
//! the time of the operation.
//!
//! A record is its length, its CRC-32 and its postcard encoding. A torn last one is cut off, and so are
//! zeros that were written ahead of records.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::attr::{Kind, Time, Version};
use crate::behind::Ready;
use crate::bytes;
use crate::delta::Delta;
use crate::path::Rel;
use crate::reserve::Reserve;

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// What the base held at a path when the agent first covered it.
    Base { path: Rel, version: Box<Version> },
    /// A new node; `id` names its content in `data/`.
    Create {
        path: Rel,
        id: u64,
        kind: Kind,
        mode: u32,
        uid: u32,
        gid: u32,
        target: Vec<u8>,
    },
    /// Another name for a node.
    Link { from: Rel, to: Rel },
    /// A name is gone.
    Remove { path: Rel },
    /// A name moved; `exchange` when the two swapped.
    Rename { from: Rel, to: Rel, exchange: bool },
    /// The content of a base file was copied to `data/id`, or emptied.
    Copy {
        path: Rel,
        id: u64,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// Attributes as they are from now on.
    Attr {
        path: Rel,
        mode: u32,
        uid: u32,
        gid: u32,
        atime: Time,
        mtime: Time,
        timed: bool,
    },
    /// Extended attributes as they are from now on, all of them.
    Xattrs {
        path: Rel,
        all: BTreeMap<Vec<u8>, Vec<u8>>,
    },
    /// What the view shows at a path is what the host had when this was written.
    Committed {
        path: Rel,
        version: Option<Box<Version>>,
    },
    /// The view shows the host's version again.
    Reverted { path: Rel },
    /// Everything staged, by path: nothing before it counts any more. Written before the host
    /// changes, because the records of operations only mean something over the host they met.
    Checkpoint { staged: Vec<Staged> },
    /// A delta is about to be carried out on the host, with temporary names `temp`.
    Intent {
        event: u64,
        delta: Box<Delta>,
        temp: Rel,
    },
    /// It was carried out (`ok`), or was not and left nothing behind.
    Finished { event: u64, ok: bool, what: String },
    /// A directory or link no longer lies in the base where it came from.
    Loose { path: Rel },
    /// A directory that its owner may not write is made writable for a while; `mode` is what it had.
    Lifted {
        path: Rel,
        dev: u64,
        ino: u64,
        mode: u32,
    },
    /// It has the mode again that it is to have.
    Lowered { dev: u64, ino: u64 },
}

impl Entry {
    /// Whether what it tells gives room back or brings work to its end, so that it may use what is kept for that.
    fn makes_room(&self) -> bool {
        matches!(
            self,
            Self::Base { .. }
                | Self::Remove { .. }
                | Self::Committed { .. }
                | Self::Reverted { .. }
                | Self::Finished { .. }
                | Self::Loose { .. }
                | Self::Lowered { .. }
        )
    }
}

/// One path whose view differs from the base, or may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Staged {
    pub(crate) path: Rel,
    /// What the base had, if that was looked at.
    pub(crate) base: Option<Option<Version>>,
    /// What the view shows.
    pub(crate) view: Option<StagedNode>,
}

/// What the view shows at a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StagedNode {
    /// Equal for names of one file.
    pub(crate) ino: u64,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) attr_staged: bool,
    pub(crate) timed: bool,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(crate) data: Option<u64>,
    /// Place in the base that it shows, or came from.
    pub(crate) base: Option<Rel>,
}

/// A tree's private directory.
#[derive(Debug)]
pub(crate) struct Upper {
    dir: PathBuf,
    data: OwnedFd,
    /// None when it is only looked at.
    journal: Option<Mutex<Journal>>,
    ready: Mutex<Ready>,
}

/// The journal's file and how much of it is whole.
#[derive(Debug)]
struct Journal {
    file: File,
    bytes: u64,
    /// How far there are zeros already, where records are made durable one by one: then the file system
    /// has nothing to note about a record but its bytes.
    zeros_to: Option<u64>,
    /// Operations were recorded since the last checkpoint.
    moved_on: bool,
    reserve: Reserve,
}

/// What a later process needs to know about a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    pub(crate) tree: String,
    pub(crate) base: String,
}

impl Upper {
    /// Opens or makes the directory.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(dir)?;
        make(&dir.join("data"))?;
        make(&dir.join("undo"))?;
        make(&dir.join("bases"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let data = rustix::fs::open(dir.join("data"), flags, Mode::empty())?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(dir.join("journal"))?;
        // A record that a power cut tore would hide every later one.
        let bytes = whole(dir)?.1;
        file.set_len(bytes)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            data,
            journal: Some(Mutex::new(Journal {
                file,
                bytes,
                zeros_to: None,
                moved_on: true,
                reserve: Reserve::open(&dir.join("reserve"))?,
            })),
            ready: Mutex::default(),
        })
    }

    /// Looks at the directory of a session that may be running; nothing is written to it.
    pub(crate) fn look_at(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let data = rustix::fs::open(dir.join("data"), flags, Mode::empty())?;
        Ok(Self {
            dir: dir.to_path_buf(),
            data,
            journal: None,
            ready: Mutex::default(),
        })
    }

    /// Writes down which tree it belongs to.
    pub(crate) fn write_card(&self, card: &Card) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(card).map_err(io::Error::other)?;
        std::fs::write(self.dir.join("tree.json"), text)
    }

    /// Where it lies.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the host's versions that commits replaced are kept.
    pub(crate) fn undo(&self) -> PathBuf {
        self.dir.join("undo")
    }

    /// Appends a record. It survives the end of this process when this returns.
    pub(crate) fn append(&self, entry: &Entry) -> Result<(), Errno> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let body = postcard::to_stdvec(entry).map_err(|_| Errno::IO)?;
        let mut record = Vec::with_capacity(body.len() + 8);
        record.extend_from_slice(
            &u32::try_from(body.len())
                .map_err(|_| Errno::FBIG)?
                .to_le_bytes(),
        );
        record.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        record.extend_from_slice(&body);
        let mut journal = journal.lock();
        journal.write_ahead(record.len());
        while let Err(error) = journal.file.write_all_at(&record, journal.bytes) {
            // Half a record would hide every later one.
            let _ = journal.file.set_len(journal.bytes);
            let full = error.kind() == io::ErrorKind::StorageFull;
            if !(full && entry.makes_room() && journal.reserve.give()) {
                return Err(bytes::errno(&error));
            }
        }
        journal.bytes += record.len() as u64;
        journal.reserve.after_record();
        match entry {
            Entry::Checkpoint { .. } => journal.moved_on = false,
            Entry::Base { .. }
            | Entry::Committed { .. }
            | Entry::Reverted { .. }
            | Entry::Intent { .. }
            | Entry::Finished { .. }
            | Entry::Lifted { .. }
            | Entry::Lowered { .. } => {}
            _ => journal.moved_on = true,
        }
        Ok(())
    }

    /// Whether operations were recorded since the last checkpoint.
    pub(crate) fn moved_on(&self) -> bool {
        self.journal
            .as_ref()
            .is_some_and(|journal| journal.lock().moved_on)
    }

    /// From now on records are often made durable one by one.
    pub(crate) fn often_durable(&self) {
        if let Some(journal) = &self.journal {
            let mut journal = journal.lock();
            journal.zeros_to = Some(journal.bytes);
        }
    }

    /// Makes the records so far survive a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let file = match &self.journal {
            Some(journal) => journal.lock().file.try_clone()?,
            None => return Ok(()),
        };
        file.sync_data()
    }

    pub(crate) fn create_data(&self, id: u64) -> Result<File, Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.data, name(id), flags, Mode::from_raw_mode(0o600))?.into())
    }

    pub(crate) fn open_data(&self, id: u64) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.data, name(id), flags, Mode::empty())?.into())
    }

    pub(crate) fn stat_data(&self, id: u64) -> Result<rustix::fs::Stat, Errno> {
        rustix::fs::statat(&self.data, name(id), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Files that are ready for new content.
    pub(crate) fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock()
    }

    /// Removes a content; open handles keep it.
    pub(crate) fn remove_data(&self, id: u64) {
        if self.journal.is_none() {
            return;
        }
        // What is left over is found and removed when the session is cleared away.
        let _ = rustix::fs::unlinkat(&self.data, name(id), AtFlags::empty());
    }
}

impl Journal {
    /// Makes sure that a record of so many bytes lies where zeros are, if it is worth it.
    fn write_ahead(&mut self, bytes: usize) {
        let end = self.bytes + bytes as u64;
        if let Some(to) = self.zeros_to.filter(|to| end > *to) {
            let zeros = vec![0; AHEAD_BYTES];
            let from = to.max(self.bytes);
            // On a full disk the record itself is told so.
            let written = self.file.write_all_at(&zeros, from);
            self.zeros_to = written.is_ok().then_some(from + AHEAD_BYTES as u64);
        }
    }
}

/// As many zeros at a time.
const AHEAD_BYTES: usize = 256 << 10;

/// What the owner had when the agent began to change it: kept for a while, so that two changes can
/// be put together.
impl Upper {
    /// Keeps a base file that is about to be covered, if it is small enough to be worth it and
    /// still is the version that was seen.
    pub(crate) fn keep_base(&self, path: &[u8], seen: &Version, source: &File) {
        if self.journal.is_none() || seen.kind != Kind::File || seen.size > BASE_BYTES_MAX {
            return;
        }
        let is_it = rustix::fs::fstat(source).is_ok_and(|stat| {
            let now = Version::of(&stat);
            (now.ino, now.size, now.mtime) == (seen.ino, seen.size, seen.mtime)
        });
        if !is_it {
            return;
        }
        // Without it there is no merge to be offered, and nothing else is lost.
        let kept = self.base_file(path, seen);
        if !kept.exists()
            && let Ok(target) = File::create(&kept)
            && bytes::copy(source, &target).is_err()
        {
            let _ = std::fs::remove_file(kept);
        }
    }

    /// The base file that a change was made over, if it was kept.
    pub(crate) fn open_base(&self, path: &[u8], seen: &Version) -> Option<File> {
        File::open(self.base_file(path, seen)).ok()
    }

    /// The change over it is no more.
    pub(crate) fn forget_base(&self, path: &[u8], seen: &Version) {
        if seen.kind == Kind::File && seen.size <= BASE_BYTES_MAX && self.journal.is_some() {
            let _ = std::fs::remove_file(self.base_file(path, seen));
        }
    }

    fn base_file(&self, path: &[u8], seen: &Version) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(path);
        hash.update(format!(" {} {} {:?}", seen.ino, seen.size, seen.mtime));
        let name: [u8; 32] = hash.finalize().into();
        self.dir
            .join("bases")
            .join(hex::encode(name.get(..16).unwrap_or_default()))
    }
}

/// Larger files are not merged.
const BASE_BYTES_MAX: u64 = 256 << 10;

fn name(id: u64) -> String {
    format!("{id}")
}

/// Reads a journal from its beginning; a torn or damaged end is left out.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Entry>> {
    Ok(whole(dir)?.0)
}

/// The whole records of a journal, and their length in bytes.
fn whole(dir: &Path) -> io::Result<(Vec<Entry>, u64)> {
    let mut bytes = Vec::new();
    match File::open(dir.join("journal")) {
        Ok(mut file) => file.read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error),
    };
    let mut entries = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((length, crc, body)) = record(rest) {
        if crc32fast::hash(body) != crc {
            break;
        }
        match postcard::from_bytes(body) {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                let what = format!("a record of `{}` cannot be read: {error}", dir.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        rest = rest.get(8 + length..).unwrap_or_default();
    }
    let read = (bytes.len() - rest.len()) as u64;
    Ok((entries, read))
}

fn record(bytes: &[u8]) -> Option<(usize, u32, &[u8])> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    if length == 0 {
        return None;
    }
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    Some((length, crc, bytes.get(8..8 + length)?))
}

/// Reads a tree's card.
pub(crate) fn read_card(dir: &Path) -> io::Result<Card> {
    serde_json::from_slice(&std::fs::read(dir.join("tree.json"))?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u8) -> Entry {
        Entry::Remove {
            path: vec![n; usize::from(n)],
        }
    }

    #[test]
    fn a_torn_record_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let upper = Upper::open(dir.path()).unwrap();
        upper.append(&entry(1)).unwrap();
        let first = std::fs::read(dir.path().join("journal")).unwrap().len();
        upper.append(&entry(2)).unwrap();
        drop(upper);
        let whole = std::fs::read(dir.path().join("journal")).unwrap();
        for length in 0..whole.len() {
            std::fs::write(dir.path().join("journal"), whole.get(..length).unwrap()).unwrap();
            let upper = Upper::open(dir.path()).unwrap();
            upper.append(&entry(3)).unwrap();
            let entries = read(dir.path()).unwrap();
            assert_eq!(entries.last(), Some(&entry(3)), "cut at {length}");
            let expect = if length < first { 1 } else { 2 };
            assert_eq!(entries.len(), expect, "cut at {length}");
        }
    }

    #[test]
    fn zeros_ahead_of_records_are_no_records_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let length = || dir.path().join("journal").metadata().unwrap().len();
        let upper = Upper::open(dir.path()).unwrap();
        upper.append(&entry(1)).unwrap();
        let first = length();
        upper.often_durable();
        // More than what is written at a time.
        let long = Entry::Remove {
            path: vec![7; AHEAD_BYTES * 2],
        };
        upper.append(&entry(2)).unwrap();
        assert_eq!(length(), first + AHEAD_BYTES as u64);
        upper.append(&long).unwrap();
        upper.append(&entry(3)).unwrap();
        upper.sync().unwrap();
        let all = [entry(1), entry(2), long, entry(3)];
        assert_eq!(read(dir.path()).unwrap(), all);
        drop(upper);
        let before = length();
        let upper = Upper::open(dir.path()).unwrap();
        assert!(length() < before);
        upper.append(&entry(4)).unwrap();
        assert_eq!(read(dir.path()).unwrap().last(), Some(&entry(4)));
        assert_eq!(read(dir.path()).unwrap().len(), all.len() + 1);
    }
}
