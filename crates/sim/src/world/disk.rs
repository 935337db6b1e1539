//! A disk that keeps what POSIX promises and nothing else: bytes after a sync of their file, names after a sync of their
//! directory. A power cut keeps any beginning of the rest, some of it as zeros (pages are written in no order), and some
//! of the names. Operations fail and the machine stops when chance says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::disk::{Append, Disk, ReadSeek};

use crate::chance::Chance;
use crate::seen::{Seen, Witness};

/// Pages are written whole.
const PAGE_BYTES: usize = 512;

/// The disk; clones are the same one.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<Machine>>);

#[derive(Debug)]
struct Machine {
    chance: Chance,
    witness: Witness,
    log: PathBuf,
    files: Vec<Bytes>,
    names: BTreeMap<PathBuf, usize>,
    names_durable: BTreeMap<PathBuf, usize>,
    pending: Vec<Change>,
    dirs: BTreeSet<PathBuf>,
    off: bool,
    crash_after: Option<u64>,
    /// Failures in ten thousand operations.
    faults: usize,
}

#[derive(Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Whether `now` starts with `durable`.
    grown_only: bool,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
struct Change {
    gone: Option<PathBuf>,
    new: Option<(PathBuf, usize)>,
}

impl Change {
    fn touches(&self, dir: &Path) -> bool {
        let inside = |path: &Path| path.parent() == Some(dir);
        self.gone.as_deref().is_some_and(inside)
            || self.new.as_ref().is_some_and(|(path, _)| inside(path))
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, usize>) {
        if let Some(path) = self.gone {
            names.remove(&path);
        }
        if let Some((path, file)) = self.new {
            names.insert(path, file);
        }
    }
}

impl SimDisk {
    /// An empty one, on which `log` is the log that the witness reads along.
    pub fn new(seed: u64, witness: Witness, log: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(Machine {
            chance: Chance::new(seed),
            witness,
            log,
            files: Vec::new(),
            names: BTreeMap::new(),
            names_durable: BTreeMap::new(),
            pending: Vec::new(),
            dirs: BTreeSet::new(),
            off: false,
            crash_after: None,
            faults: 0,
        })))
    }

    /// The machine stops after that many more operations.
    pub fn crash_after(&self, operations: u64) {
        self.machine().crash_after = Some(operations);
    }

    /// So many in ten thousand operations fail from now on.
    pub fn fail(&self, in_ten_thousand: usize) {
        self.machine().faults = in_ten_thousand;
    }

    /// Whether the machine has stopped.
    pub fn is_off(&self) -> bool {
        self.machine().off
    }

    /// Something that is no disk operation happens: the machine may stop here too.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn tick(&self) -> io::Result<()> {
        self.machine().run()
    }

    /// The process dies. Without the power, everything written is still there; with it, only what was durable, and
    /// whatever else chance keeps.
    pub fn restart(&self, power: bool) {
        let mut machine = self.machine();
        machine.off = false;
        machine.crash_after = None;
        if power {
            machine.lose();
        }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    /// Every operation passes here.
    fn run(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.crash_after {
            if *left == 0 {
                self.off = true;
            } else {
                *left -= 1;
            }
        }
        if self.off {
            return Err(io::Error::other("the machine has stopped"));
        }
        Ok(())
    }

    /// As [`Machine::run`], for what can fail by itself.
    fn may_fail(&mut self, path: &Path) -> io::Result<()> {
        self.run()?;
        if self.faults > 0 && self.chance.below(10_000) < self.faults {
            if self.is_log(path) {
                self.witness.saw(Seen::LogFault);
            }
            let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::Other];
            return Err(io::Error::new(*self.chance.one(&kinds), "the disk said no"));
        }
        Ok(())
    }

    /// A log that is not published yet has another ending.
    fn is_log(&self, path: &Path) -> bool {
        path.file_stem() == self.log.file_stem() && path.parent() == self.log.parent()
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.names);
        self.pending.push(change);
    }

    fn lose(&mut self) {
        let mut names = std::mem::take(&mut self.names_durable);
        let in_order = self.chance.permille(700);
        let keep = self.chance.below(self.pending.len() + 1);
        for (number, change) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            if if in_order {
                number < keep
            } else {
                self.chance.permille(500)
            } {
                change.apply(&mut names);
            }
        }
        self.names = names.clone();
        self.names_durable = names;
        let live: BTreeSet<usize> = self.names.values().copied().collect();
        for (number, bytes) in self.files.iter_mut().enumerate() {
            if live.contains(&number) {
                bytes.lose(&mut self.chance);
            } else {
                *bytes = Bytes::default();
            }
        }
    }
}

impl Bytes {
    fn lose(&mut self, chance: &mut Chance) {
        if self.grown_only && self.now.len() > self.durable.len() {
            let more = self.now.len() - self.durable.len();
            let keep = match chance.below(3) {
                0 => 0,
                1 => more,
                _ => chance.below(more + 1),
            };
            let from = self.durable.len();
            self.now.truncate(from + keep);
            if chance.permille(300) {
                let mut at = from;
                while at < self.now.len() {
                    let end = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(self.now.len());
                    if chance.permille(300) {
                        self.now[at..end].fill(0);
                    }
                    at = end;
                }
            }
        } else if !self.grown_only && chance.permille(500) {
            self.now = self.durable.clone();
        }
        self.durable = self.now.clone();
        self.grown_only = true;
    }

    fn sync(&mut self) {
        if self.grown_only {
            let from = self.durable.len();
            self.durable.extend_from_slice(&self.now[from..]);
        } else {
            self.durable = self.now.clone();
            self.grown_only = true;
        }
    }
}

impl Disk for SimDisk {
    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.run()?;
        machine.dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.run()?;
        if machine.dirs.insert(path.to_path_buf()) {
            Ok(())
        } else {
            Err(io::ErrorKind::AlreadyExists.into())
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let mut machine = self.machine();
        machine.may_fail(path)?;
        if machine.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = machine.files.len();
        machine.files.push(Bytes {
            grown_only: true,
            ..Bytes::default()
        });
        let new = Some((path.to_path_buf(), file));
        machine.change(Change { gone: None, new });
        Ok(self.open(path, file))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let mut machine = self.machine();
        machine.may_fail(path)?;
        let file = machine.find(path)?;
        Ok(self.open(path, file))
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn ReadSeek>> {
        let mut machine = self.machine();
        machine.run()?;
        let file = machine.find(path)?;
        Ok(Box::new(io::Cursor::new(machine.files[file].now.clone())))
    }

    fn contains(&self, path: &Path) -> bool {
        let machine = self.machine();
        machine.names.contains_key(path) || machine.dirs.contains(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.may_fail(from)?;
        let file = machine.find(from)?;
        let (gone, new) = (Some(from.to_path_buf()), Some((to.to_path_buf(), file)));
        machine.change(Change { gone, new });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.may_fail(path)?;
        machine.find(path)?;
        let gone = Some(path.to_path_buf());
        machine.change(Change { gone, new: None });
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut machine = self.machine();
        machine.run()?;
        let names = machine.names.keys().chain(&machine.dirs);
        Ok(names
            .filter(|name| name.parent() == Some(path))
            .filter_map(|name| name.file_name().map(OsString::from))
            .collect())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.may_fail(path)?;
        let pending = std::mem::take(&mut machine.pending);
        let (now, later) = pending.into_iter().partition(|change| change.touches(path));
        machine.pending = later;
        for change in now {
            change.apply(&mut machine.names_durable);
        }
        Ok(())
    }
}

impl SimDisk {
    fn open(&self, path: &Path, file: usize) -> Box<dyn Append> {
        Box::new(SimFile {
            disk: self.clone(),
            path: path.to_path_buf(),
            file,
        })
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    file: usize,
}

impl Write for SimFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut machine = self.disk.machine();
        let written = match machine.may_fail(&self.path) {
            Ok(()) => buffer.len(),
            // Some of it may be there all the same.
            Err(error) if machine.chance.permille(500) => {
                let part = machine.chance.below(buffer.len());
                machine.files[self.file]
                    .now
                    .extend_from_slice(&buffer[..part]);
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        machine.files[self.file].now.extend_from_slice(buffer);
        if machine.is_log(&self.path) {
            // Several records may go in one write.
            for line in buffer.split_inclusive(|byte| *byte == b'\n') {
                machine.witness.saw(Seen::Wrote(line.to_vec()));
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Append for SimFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut machine = self.disk.machine();
        machine.may_fail(&self.path)?;
        machine.files[self.file].sync();
        if machine.is_log(&self.path) {
            machine.witness.saw(Seen::Synced);
        }
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let mut machine = self.disk.machine();
        machine.may_fail(&self.path)?;
        let file = &mut machine.files[self.file];
        let bytes = bytes as usize;
        if bytes < file.now.len() {
            file.now.truncate(bytes);
            file.grown_only = bytes >= file.durable.len() && file.grown_only;
        }
        Ok(())
    }
}
