//! The log: append-only, hash-chained, one JSON object a line.
//!
//! A line is `{"seq":N,"at":"…","prev":"…","body":{…}}` followed by nothing. `prev` is the SHA-256 of
//! the whole previous line (without its newline), so changing, dropping or reordering a line
//! breaks every later one. A torn end (a crash while writing) is recognised and cut off.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::Digest;
use kernel::planted::{self, Bug};
use serde::Deserialize;

use crate::disk::{Append, Disk, OsDisk};
use crate::record::Record;

/// Why the log could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system said no.
    #[error("cannot {what} `{path}`: {source}{}", hint(.source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not what its successor says it was, or cannot be read.
    #[error("`{path}` line {line}: {what}; the log was changed or damaged after it was written")]
    Broken {
        /// Where.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A permit was presented twice.
    #[error("the permit of event {0} was spent before; it is good for one time only")]
    SpentTwice(u64),
    /// An earlier write failed; what followed would have a gap.
    #[error("the log stopped at an earlier failure: {0}")]
    Stopped(String),
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::StorageFull => "; free some space and run it again, nothing was lost",
        std::io::ErrorKind::PermissionDenied => "; check who owns it",
        _ => "",
    }
}

/// A line as read; [`Log::write`] writes it.
#[derive(Deserialize)]
struct Line<'a> {
    seq: u64,
    at: String,
    prev: String,
    #[serde(borrow)]
    body: &'a serde_json::value::RawValue,
}

/// One record with its place in the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Number, from 1.
    pub seq: u64,
    /// When it was written, RFC 3339 with milliseconds.
    pub at: String,
    /// The record.
    pub record: Record,
}

/// What the time is, as it is written: RFC 3339 with milliseconds.
type Clock = Box<dyn Fn() -> String + Send + Sync>;

/// An open log.
pub struct Log {
    disk: Arc<dyn Disk>,
    out: Arc<Out>,
    path: Arc<Path>,
    seq: u64,
    prev: Digest,
    clock: Clock,
    /// Lines that wait for [`Log::hand_over`].
    lines: Vec<u8>,
    /// Whether they do.
    gathers: bool,
}

/// The way into the file, for lines in the order they were handed over.
struct Out {
    /// Lines that nobody has written yet.
    queue: Mutex<Queue>,
    /// Who has it writes all that waits.
    file: Mutex<Filed>,
    /// Whether a write failed; what followed would have a gap.
    stopped: AtomicBool,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// Bytes that were handed over, all in all.
    bytes: u64,
}

struct Filed {
    file: Box<dyn Append>,
    /// Bytes that were handed over and written, all in all.
    bytes: u64,
    /// Why nothing more is.
    stopped: Option<String>,
    /// Kept for its capacity.
    lines: Vec<u8>,
}

/// Lines that were handed over. Nothing may act on them before they are written.
#[must_use = "nothing may act on a record before it is in the file"]
pub struct Due {
    out: Arc<Out>,
    path: Arc<Path>,
    /// They end where so many bytes were handed over.
    bytes: u64,
}

impl Due {
    /// Writes them, and with them all that waits, unless somebody else has.
    ///
    /// # Errors
    /// When they cannot be written; the log then accepts nothing more.
    pub fn write(self) -> Result<(), LogError> {
        self.out.write(&self.path, self.bytes)
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due").field("bytes", &self.bytes).finish()
    }
}

impl Out {
    fn new(file: Box<dyn Append>) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            file: Mutex::new(Filed {
                file,
                bytes: 0,
                stopped: None,
                lines: Vec::new(),
            }),
            stopped: AtomicBool::new(false),
        })
    }

    /// Writes what was handed over, at least so many bytes of it all.
    fn write(&self, path: &Path, bytes: u64) -> Result<(), LogError> {
        let mut filed = lock(&self.file);
        if filed.bytes >= bytes {
            return Ok(());
        }
        self.going(&filed)?;
        let mut lines = std::mem::take(&mut filed.lines);
        let handed = {
            let mut queue = lock(&self.queue);
            std::mem::swap(&mut lines, &mut queue.lines);
            queue.bytes
        };
        let written = filed.file.write_all(&lines);
        lines.clear();
        filed.lines = lines;
        let written = match written {
            Err(_) if planted::is(Bug::LogSwallows) => Ok(()),
            written => written,
        };
        self.stopping(&mut filed, "append to", path, written)?;
        filed.bytes = handed;
        Ok(())
    }

    /// Makes what was written durable.
    fn sync(&self, path: &Path) -> Result<(), LogError> {
        let mut filed = lock(&self.file);
        let result = filed.file.sync();
        self.stopping(&mut filed, "sync", path, result)
    }

    /// An error if the log has stopped.
    fn going(&self, filed: &Filed) -> Result<(), LogError> {
        match &filed.stopped {
            Some(why) => Err(LogError::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    /// Stops the log if something failed.
    fn stopping(
        &self,
        filed: &mut Filed,
        what: &'static str,
        path: &Path,
        result: std::io::Result<()>,
    ) -> Result<(), LogError> {
        result.map_err(|source| {
            let error = LogError::Io {
                what,
                path: path.to_path_buf(),
                source,
            };
            filed.stopped = Some(error.to_string());
            self.stopped.store(true, Ordering::Release);
            error
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A write that did not come back is in doubt, and a log in doubt is found out when it is read.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("path", &self.path)
            .field("seq", &self.seq)
            .field("stopped", &self.out.stopped)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Starts a new log; the file must not exist.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(
        path: &Path,
        clock: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, LogError> {
        Self::create_on(&OsDisk::shared(), path, clock)
    }

    /// As [`Log::create`], on another disk than the host's.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create_on(
        disk: &Arc<dyn Disk>,
        path: &Path,
        clock: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, LogError> {
        let file = disk.create(path).map_err(|source| LogError::Io {
            what: "create",
            path: path.to_path_buf(),
            source,
        })?;
        let log = Self {
            disk: Arc::clone(disk),
            out: Out::new(file),
            path: path.into(),
            seq: 0,
            prev: Digest::default(),
            clock: Box::new(clock),
            lines: Vec::new(),
            gathers: false,
        };
        log.sync_name()?;
        Ok(log)
    }

    /// Gives a log the name it is found by, once it has its first record: a log of that name is
    /// never empty, whenever a crash comes.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn publish(&mut self, path: &Path) -> Result<(), LogError> {
        self.sync()?;
        self.disk
            .rename(&self.path, path)
            .map_err(|source| LogError::Io {
                what: "rename",
                path: self.path.to_path_buf(),
                source,
            })?;
        self.path = path.into();
        self.sync_name()
    }

    /// Reads a log to its end, cuts off a torn last line, and goes on behind it.
    ///
    /// # Errors
    /// When it cannot be read or the chain is broken.
    pub fn resume(
        path: &Path,
        clock: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<(Self, Vec<Entry>), LogError> {
        Self::resume_on(&OsDisk::shared(), path, clock)
    }

    /// As [`Log::resume`], on another disk than the host's.
    ///
    /// # Errors
    /// When it cannot be read or the chain is broken.
    pub fn resume_on(
        disk: &Arc<dyn Disk>,
        path: &Path,
        clock: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<(Self, Vec<Entry>), LogError> {
        let read = read_on(&**disk, path)?;
        let io = |what| {
            move |source| LogError::Io {
                what,
                path: path.to_path_buf(),
                source,
            }
        };
        let mut file = disk.append(path).map_err(io("open"))?;
        if !planted::is(Bug::TornKept) {
            file.cut(read.whole_bytes)
                .map_err(io("cut the torn end of"))?;
        }
        // What was read may still be in memory only; what is decided from now on builds on it.
        file.sync().map_err(io("sync"))?;
        let log = Self {
            disk: Arc::clone(disk),
            out: Out::new(file),
            path: path.into(),
            seq: read.entries.last().map_or(0, |e| e.seq),
            prev: read.prev,
            clock: Box::new(clock),
            lines: Vec::new(),
            gathers: false,
        };
        Ok((log, read.entries))
    }

    /// Appends a record. It is in the file when this returns (but see [`Log::gather`]), durable after [`Log::sync`].
    ///
    /// # Errors
    /// When it cannot be written; the log then accepts nothing more.
    pub fn append(&mut self, record: &Record) -> Result<u64, LogError> {
        self.going()?;
        let seq = match self.compose(record) {
            Ok(seq) => seq,
            Err(error) => {
                let mut filed = lock(&self.out.file);
                let stopped = self
                    .out
                    .stopping(&mut filed, "append to", &self.path, Err(error));
                return stopped.map(|()| self.seq);
            }
        };
        if !self.gathers {
            self.hand_over().write()?;
        }
        Ok(seq)
    }

    /// What is appended from now on goes to the file together, by [`Log::write_out`], [`Log::sync`] or what
    /// [`Log::hand_over`] gives. Nothing may act on a record before.
    pub fn gather(&mut self) {
        self.gathers = true;
    }

    /// Hands what was gathered over, to be written while others append already; each record is in the file at once
    /// again from now on.
    pub fn hand_over(&mut self) -> Due {
        self.gathers = false;
        let mut queue = lock(&self.out.queue);
        queue.bytes += self.lines.len() as u64;
        if queue.lines.is_empty() {
            std::mem::swap(&mut queue.lines, &mut self.lines);
        } else {
            queue.lines.append(&mut self.lines);
        }
        Due {
            out: Arc::clone(&self.out),
            path: Arc::clone(&self.path),
            bytes: queue.bytes,
        }
    }

    /// Writes what was gathered; each record is in the file at once again from now on.
    ///
    /// # Errors
    /// When it cannot be written; the log then accepts nothing more.
    pub fn write_out(&mut self) -> Result<(), LogError> {
        self.gathers = false;
        self.going()?;
        self.hand_over().write()
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// When the disk does not confirm; the log then accepts nothing more.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.write_out()?;
        self.out.sync(&self.path)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error if the log has stopped.
    fn going(&self) -> Result<(), LogError> {
        if self.out.stopped.load(Ordering::Acquire) {
            return self.out.going(&lock(&self.out.file));
        }
        Ok(())
    }

    /// Makes one line behind those that wait, the digest of the one before in it.
    fn compose(&mut self, record: &Record) -> std::io::Result<u64> {
        let at = (self.clock)();
        let start = self.lines.len();
        compose(&mut self.lines, self.seq + 1, &at, &self.prev, record)?;
        self.prev = Digest::of(self.lines.get(start..).unwrap_or_default());
        self.lines.push(b'\n');
        self.seq += 1;
        Ok(self.seq)
    }

    fn sync_name(&self) -> Result<(), LogError> {
        match self.path.parent() {
            None => Ok(()),
            Some(dir) => self.disk.sync_dir(dir).map_err(|source| LogError::Io {
                what: "sync",
                path: dir.to_path_buf(),
                source,
            }),
        }
    }
}

/// One line without its newline, behind what `line` holds.
fn compose(
    line: &mut Vec<u8>,
    seq: u64,
    at: &str,
    prev: &Digest,
    record: &Record,
) -> std::io::Result<()> {
    write!(line, "{{\"seq\":{seq},\"at\":")?;
    serde_json::to_writer(&mut *line, at)?;
    write!(line, ",\"prev\":\"{}\",\"body\":", prev.hex())?;
    serde_json::to_writer(&mut *line, record)?;
    line.push(b'}');
    Ok(())
}

/// A log as read.
#[derive(Debug)]
pub struct Reading {
    /// Its records.
    pub entries: Vec<Entry>,
    /// Bytes at the end that a crash tore.
    pub torn_bytes: u64,
    /// Digest of the last whole line.
    pub prev: Digest,
    whole_bytes: u64,
}

/// Reads and verifies a log.
///
/// # Errors
/// When it cannot be read or a line does not fit the chain.
pub fn read(path: &Path) -> Result<Reading, LogError> {
    read_on(&OsDisk, path)
}

/// As [`read`], on another disk than the host's.
///
/// # Errors
/// As [`read`].
pub fn read_on(disk: &dyn Disk, path: &Path) -> Result<Reading, LogError> {
    let file = disk.read(path).map_err(|source| LogError::Io {
        what: "read",
        path: path.to_path_buf(),
        source,
    })?;
    read_from(BufReader::new(file), path)
}

/// As [`read`], from what is open; `path` is for errors only.
///
/// # Errors
/// As [`read`].
pub fn read_from(mut reader: impl BufRead, path: &Path) -> Result<Reading, LogError> {
    let io = |source| LogError::Io {
        what: "read",
        path: path.to_path_buf(),
        source,
    };
    let broken = |line, what: String| LogError::Broken {
        path: path.to_path_buf(),
        line,
        what,
    };
    let mut reading = Reading {
        entries: Vec::new(),
        torn_bytes: 0,
        prev: Digest::default(),
        whole_bytes: 0,
    };
    let mut text = Vec::new();
    loop {
        text.clear();
        let bytes = reader.read_until(b'\n', &mut text).map_err(io)? as u64;
        if bytes == 0 {
            return Ok(reading);
        }
        // A page that a power cut kept from the disk reads as zeros, which no record has; what
        // comes after it was not durable either.
        if text.pop() != Some(b'\n') || text.contains(&0) {
            reading.torn_bytes =
                bytes + std::io::copy(&mut reader, &mut std::io::sink()).map_err(io)?;
            return Ok(reading);
        }
        let number = reading.entries.len() as u64 + 1;
        let line: Line<'_> = serde_json::from_slice(&text)
            .map_err(|e| broken(number, format!("it is not a record ({e})")))?;
        if line.seq != number {
            return Err(broken(number, format!("it says it is record {}", line.seq)));
        }
        if line.prev != reading.prev.hex() {
            return Err(broken(
                number,
                "it does not follow from the line before".to_string(),
            ));
        }
        let record = serde_json::from_str(line.body.get())
            .map_err(|e| broken(number, format!("its body cannot be read ({e})")))?;
        reading.entries.push(Entry {
            seq: line.seq,
            at: line.at,
            record,
        });
        reading.prev = Digest::of(&text);
        reading.whole_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Record {
        Record::Note {
            what: text.to_string(),
            facts: Default::default(),
        }
    }

    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("log");
        let mut log = Log::create(&path, || "t".to_string()).unwrap();
        for text in ["a", "b", "c"] {
            log.append(&note(text)).unwrap();
        }
        path
    }

    #[test]
    fn reads_back_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let (mut log, entries) = Log::resume(&path, || "t".to_string()).unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[1].record, note("b"));
        log.append(&note("d")).unwrap();
        assert_eq!(read(&path).unwrap().entries.len(), 4);
    }

    #[test]
    fn what_is_gathered_goes_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let (mut log, _) = Log::resume(&path, || "t".to_string()).unwrap();
        let count = || read(&path).unwrap().entries.len();
        log.gather();
        log.append(&note("d")).unwrap();
        log.append(&note("e")).unwrap();
        assert_eq!(count(), 3);
        log.write_out().unwrap();
        assert_eq!(count(), 5);
        log.append(&note("f")).unwrap();
        assert_eq!(count(), 6);
        log.gather();
        log.append(&note("g")).unwrap();
        log.sync().unwrap();
        log.append(&note("h")).unwrap();
        assert_eq!(count(), 8);
    }

    #[test]
    fn what_is_handed_over_keeps_its_order_whoever_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let (mut log, _) = Log::resume(&path, || "t".to_string()).unwrap();
        let count = || read(&path).unwrap().entries.len();
        let mut due = |text: &str| {
            log.gather();
            log.append(&note(text)).unwrap();
            log.hand_over()
        };
        let (first, second) = (due("d"), due("e"));
        assert_eq!(count(), 3);
        second.write().unwrap();
        assert_eq!(count(), 5);
        let third = due("f");
        first.write().unwrap();
        assert_eq!(count(), 5, "it was written already");
        // Not handed over to be written by itself, it takes with it what waits.
        log.append(&note("g")).unwrap();
        assert_eq!(count(), 7);
        third.write().unwrap();
        assert_eq!(count(), 7);

        // From many threads at once.
        let log = Mutex::new(log);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for nth in 0..50 {
                        let due = {
                            let mut log = log.lock().unwrap();
                            log.gather();
                            log.append(&note(&format!("{thread} {nth}"))).unwrap();
                            log.hand_over()
                        };
                        due.write().unwrap();
                    }
                });
            }
        });
        assert_eq!(count(), 207);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let whole = std::fs::read(&path).unwrap();
        let last_line = whole[..whole.len() - 1]
            .iter()
            .rposition(|b| *b == b'\n')
            .unwrap()
            + 1;
        for at in 0..last_line {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(read(&path).is_err(), "byte {at} changed unnoticed");
        }
    }

    #[test]
    fn a_torn_end_is_cut_off_and_the_rest_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let whole = std::fs::read(&path).unwrap();
        let last_line = whole[..whole.len() - 1]
            .iter()
            .rposition(|b| *b == b'\n')
            .unwrap()
            + 1;
        for cut in last_line + 1..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut log, entries) = Log::resume(&path, || "t".to_string()).unwrap();
            assert_eq!(entries.len(), 2);
            log.append(&note("again")).unwrap();
            assert_eq!(read(&path).unwrap().entries.len(), 3);
        }
    }
}
