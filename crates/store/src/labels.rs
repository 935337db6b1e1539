//! Labels that stick to a workspace's places, kept beside its sessions: one change a line, appended
//! before the change happens. Merging is repeatable, so a line that is written twice does no harm.

use std::fs::{File, OpenOptions};
use std::io::{self, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::labels::Labels;
use kernel::{Digest, Label, Place, Relabel};

use crate::disk::{Append, Disk, OsDisk};
use crate::record::WrittenRelabel;

/// With more lines than this and twice as many as places, the file is written anew.
const LINES_MIN: usize = 4096;

/// Why labels cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum LabelsError {
    /// The file system said no.
    #[error("cannot {what} `{path}`: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line cannot be read.
    #[error(
        "`{path}` line {line} cannot be read ({what}); what earlier sessions wrote in this workspace is \
         not known without it. Mend the line, or move the file away to trust the workspace as the policy says"
    )]
    Broken {
        /// Where.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// The labels of one workspace, open for appending.
#[derive(Debug)]
pub struct WorkspaceLabels {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    file: Box<dyn Append>,
    known: Vec<(Place, Label)>,
    /// So much of the file was read, in bytes and in lines.
    read_bytes: u64,
    read_lines: usize,
    /// Other sessions of the workspace see by it that this one appends.
    _lock: Option<File>,
}

impl WorkspaceLabels {
    /// Opens the labels of a workspace below a directory, by the workspace's identity.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn open(root: &Path, workspace: &str) -> Result<Self, LabelsError> {
        let path = path_of(root, workspace);
        let lock_path = path.with_file_name("lock");
        let io = |what| {
            let path = lock_path.clone();
            move |source| LabelsError::Io { what, path, source }
        };
        if let Some(dir) = path.parent() {
            OsDisk.make_dirs(dir).map_err(io("make the directory of"))?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(io("open"))?;
        // Whoever is alone may mend and rewrite.
        let alone = lock.try_lock().is_ok();
        let mut labels = Self::open_path(&OsDisk::shared(), path, alone)?;
        lock.lock_shared().map_err(io("lock"))?;
        labels._lock = Some(lock);
        Ok(labels)
    }

    /// As [`WorkspaceLabels::open`], on a disk that nobody else uses.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn open_on(
        disk: &Arc<dyn Disk>,
        root: &Path,
        workspace: &str,
    ) -> Result<Self, LabelsError> {
        Self::open_path(disk, path_of(root, workspace), true)
    }

    /// As [`WorkspaceLabels::open_on`], while other sessions may have them open: nothing is mended or rewritten.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn open_beside(
        disk: &Arc<dyn Disk>,
        root: &Path,
        workspace: &str,
    ) -> Result<Self, LabelsError> {
        Self::open_path(disk, path_of(root, workspace), false)
    }

    fn open_path(disk: &Arc<dyn Disk>, path: PathBuf, alone: bool) -> Result<Self, LabelsError> {
        let io = |what| {
            let path = path.clone();
            move |source| LabelsError::Io { what, path, source }
        };
        let dir = path.parent().unwrap_or(Path::new("."));
        disk.make_dirs(dir).map_err(io("make the directory of"))?;
        if !disk.contains(&path) {
            disk.create(&path).map_err(io("make"))?;
            disk.sync_dir(dir).map_err(io("make"))?;
        }
        let mut text = Vec::new();
        disk.read(&path)
            .and_then(|mut file| file.read_to_end(&mut text))
            .map_err(io("read"))?;
        // A page that a power cut kept from the disk reads as zeros; whoever is alone cuts it off.
        let zeros = text.iter().position(|byte| alone && *byte == 0);
        let sound = text.get(..zeros.unwrap_or(text.len())).unwrap_or_default();
        let (changes, whole_bytes) = changes(&path, sound, 0)?;
        let mut labels = Labels::default();
        changes.iter().for_each(|change| labels.apply(change));
        let (mut read_lines, mut read_bytes) = (changes.len(), whole_bytes as u64);
        let known: Vec<(Place, Label)> = labels
            .permanent()
            .map(|(place, label)| (place.clone(), label))
            .collect();
        let rewritten = alone && read_lines > LINES_MIN && read_lines > known.len() * 2;
        if rewritten {
            let part = dir.join("labels.part");
            if disk.contains(&part) {
                disk.remove(&part).map_err(io("rewrite"))?;
            }
            let mut anew = disk.create(&part).map_err(io("rewrite"))?;
            let mut text = Vec::new();
            for (place, label) in &known {
                text.extend(line(&Relabel::Stick(place.clone(), *label)));
            }
            anew.write_all(&text)
                .and_then(|()| anew.sync())
                .and_then(|()| disk.rename(&part, &path))
                .and_then(|()| disk.sync_dir(dir))
                .map_err(io("rewrite"))?;
            (read_lines, read_bytes) = (known.len(), text.len() as u64);
        }
        let mut file = disk.append(&path).map_err(io("open"))?;
        if alone && whole_bytes < text.len() && !rewritten {
            file.cut(whole_bytes as u64)
                .map_err(io("cut the torn end of"))?;
        }
        Ok(Self {
            path,
            disk: Arc::clone(disk),
            file,
            known,
            read_bytes,
            read_lines,
            _lock: None,
        })
    }

    /// What was appended since, by sessions beside this one and by itself.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn news(&mut self) -> Result<Vec<Relabel>, LabelsError> {
        let mut text = Vec::new();
        let from = SeekFrom::Start(self.read_bytes);
        self.disk
            .read(&self.path)
            .and_then(|mut file| {
                file.seek(from)?;
                file.read_to_end(&mut text)
            })
            .map_err(|source| self.io("read", source))?;
        let (news, whole_bytes) = changes(&self.path, &text, self.read_lines)?;
        self.read_bytes += whole_bytes as u64;
        self.read_lines += news.len();
        Ok(news)
    }

    /// What sticks from before, in order of places.
    pub fn known(&self) -> &[(Place, Label)] {
        &self.known
    }

    /// Adds a change; durable after [`WorkspaceLabels::sync`].
    ///
    /// # Errors
    /// When it cannot be written; the change must not happen then.
    pub fn append(&mut self, relabel: &Relabel) -> Result<(), LabelsError> {
        self.file
            .write_all(&line(relabel))
            .map_err(|source| self.io("append to", source))
    }

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// When the disk does not confirm.
    pub fn sync(&mut self) -> Result<(), LabelsError> {
        self.file.sync().map_err(|source| self.io("sync", source))
    }

    fn io(&self, what: &'static str, source: io::Error) -> LabelsError {
        LabelsError::Io {
            what,
            path: self.path.clone(),
            source,
        }
    }
}

fn path_of(root: &Path, workspace: &str) -> PathBuf {
    let name = Digest::of(workspace.as_bytes()).hex();
    let name = name.get(..32).unwrap_or(&name);
    root.join("workspaces").join(name).join("labels.jsonl")
}

fn line(relabel: &Relabel) -> Vec<u8> {
    // Maps with text keys always have a JSON form.
    let mut line = serde_json::to_vec(&WrittenRelabel::from(relabel)).unwrap_or_default();
    line.push(b'\n');
    line
}

fn read_line(written: &[u8]) -> Result<Relabel, String> {
    let relabel: WrittenRelabel =
        serde_json::from_slice(written).map_err(|error| error.to_string())?;
    relabel.read()
}

/// The changes that stand in whole lines, and how many bytes these are; `before` so many lines were
/// read earlier. The end of a text may be just being written, or cut off by a crash: its change did
/// not happen.
fn changes(path: &Path, text: &[u8], before: usize) -> Result<(Vec<Relabel>, usize), LabelsError> {
    let mut found = Vec::new();
    let mut whole_bytes = 0;
    for piece in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(written) = piece.strip_suffix(b"\n") else {
            break;
        };
        let change = read_line(written).map_err(|what| LabelsError::Broken {
            path: path.to_path_buf(),
            line: before + found.len() + 1,
            what,
        })?;
        found.push(change);
        whole_bytes += piece.len();
    }
    Ok((found, whole_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Level;
    use kernel::value::{Kind, KindSet};

    fn stick(path: &str, kinds: &[Kind], level: Level) -> Relabel {
        let place = Place {
            tree: "workspace".to_string(),
            path: path.to_string(),
        };
        let trusted = KindSet::of(kinds);
        Relabel::Stick(place, Label { trusted, level })
    }

    #[test]
    fn sessions_beside_each_other_lose_nothing() {
        let disk = crate::MemoryDisk::shared();
        let open = || WorkspaceLabels::open_beside(&disk, Path::new("/"), "w").unwrap();
        let mut one = open();
        // So many that whoever is alone would write the file anew.
        for _ in 0..=LINES_MIN {
            one.append(&stick("a", &[Kind::Path], Level::Public))
                .unwrap();
        }
        let mut two = open();
        one.append(&stick("b", &[Kind::Path], Level::Critical))
            .unwrap();
        two.append(&stick("c", &[Kind::Path], Level::Critical))
            .unwrap();
        assert_eq!(two.news().unwrap().len(), 2);
        assert_eq!(open().known().len(), 3);
    }

    #[test]
    fn labels_outlive_a_session_and_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let note = stick("notes.md", &[Kind::Path], Level::Critical);
        let mut labels = WorkspaceLabels::open(dir.path(), "w").unwrap();
        labels.append(&note).unwrap();
        labels
            .append(&stick("notes.md", &[Kind::Host], Level::Public))
            .unwrap();
        labels.sync().unwrap();
        drop(labels);
        let path = path_of(dir.path(), "w");
        OsDisk
            .append(&path)
            .unwrap()
            .write_all(b"{\"stick\":{\"tree\":\"wor")
            .unwrap();
        let mut again = WorkspaceLabels::open(dir.path(), "w").unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(b"\n"));
        let (_, label) = again.known().first().unwrap();
        assert_eq!(label.level, Level::Critical);
        assert!(label.trusted.is_empty());
        let Relabel::Stick(place, _) = note else {
            unreachable!()
        };
        again.append(&Relabel::Clear(place)).unwrap();
        let cleared = WorkspaceLabels::open(dir.path(), "w").unwrap();
        assert!(cleared.known().is_empty());
        let other = WorkspaceLabels::open(dir.path(), "another").unwrap();
        assert!(other.known().is_empty());
    }

    #[test]
    fn a_damaged_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let labels = WorkspaceLabels::open(dir.path(), "w").unwrap();
        std::fs::write(&labels.path, "{\"clear\":[\"workspace\",\"a\"]}\nrubbish\n").unwrap();
        let error = WorkspaceLabels::open(dir.path(), "w").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn many_lines_about_few_places_are_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut labels = WorkspaceLabels::open(dir.path(), "w").unwrap();
        for round in 0..=LINES_MIN {
            let path = if round % 2 == 0 { "a" } else { "b" };
            labels.append(&stick(path, &[], Level::Internal)).unwrap();
        }
        let before = std::fs::metadata(&labels.path).unwrap().len();
        // Not while another session appends.
        drop(WorkspaceLabels::open(dir.path(), "w").unwrap());
        assert_eq!(std::fs::metadata(&labels.path).unwrap().len(), before);
        drop(labels);
        let again = WorkspaceLabels::open(dir.path(), "w").unwrap();
        assert_eq!(again.known().len(), 2);
        assert!(std::fs::metadata(&again.path).unwrap().len() < before / 100);
    }
}
