//! What is on disk below a folder, so that before and after can be compared: kind, mode, owner, change time, content.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// One snapshot. Paths are relative to the folder; the folder itself is `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    changed: (i64, i64),
    content: String,
}

impl Tree {
    pub fn of(folder: &Path) -> Self {
        let mut entries = BTreeMap::new();
        visit(folder, Path::new("."), &mut entries);
        Self(entries)
    }

    /// Everything that differs, in words; empty when nothing does.
    pub fn changes_to(&self, after: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (path, entry) in &self.0 {
            match after.0.get(path) {
                None => changes.push(Change {
                    path: path.clone(),
                    what: "gone".into(),
                }),
                Some(other) if entry != other => {
                    changes.push(Change {
                        path: path.clone(),
                        what: difference(entry, other),
                    });
                }
                Some(_) => {}
            }
        }
        for path in after.0.keys().filter(|path| !self.0.contains_key(*path)) {
            changes.push(Change {
                path: path.clone(),
                what: "new".into(),
            });
        }
        changes
    }

    /// As [`Self::changes_to`], without what any honest session changes: the change time of a folder in which something was
    /// made, and git's index, which `git status` refreshes.
    pub fn notable_changes_to(&self, after: &Self) -> Vec<Change> {
        let all = self.changes_to(after);
        let touched: Vec<_> = all
            .iter()
            .filter(|change| change.what == "new" || change.what == "gone" || change.is_git_index())
            .filter_map(|change| change.path.parent().map(Path::to_owned))
            .collect();
        all.into_iter()
            .filter(|change| !change.is_git_index())
            .filter(|change| {
                !(change.what == "change time"
                    && touched.iter().any(|folder| same(folder, &change.path)))
            })
            .collect()
    }
}

/// One difference between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    pub what: String,
}

impl Change {
    fn is_git_index(&self) -> bool {
        self.path.ends_with(".git/index")
    }
}

fn same(folder: &Path, path: &Path) -> bool {
    folder == path || (folder.as_os_str().is_empty() && path == Path::new("."))
}

fn difference(before: &Entry, after: &Entry) -> String {
    let mut said = Vec::new();
    if before.kind != after.kind {
        said.push("kind");
    }
    if before.mode != after.mode {
        said.push("mode");
    }
    if before.owner != after.owner {
        said.push("owner");
    }
    if before.content != after.content {
        said.push("content");
    }
    if before.links != after.links && before.kind == "file" {
        said.push("links");
    }
    if said.is_empty() {
        said.push("change time");
    }
    said.join(", ")
}

fn visit(path: &Path, name: &Path, entries: &mut BTreeMap<PathBuf, Entry>) {
    let meta = path.symlink_metadata().unwrap();
    let kind = meta.file_type();
    let (kind, content) = if kind.is_dir() {
        ("folder", String::new())
    } else if kind.is_symlink() {
        ("symlink", path.read_link().unwrap().display().to_string())
    } else if kind.is_file() {
        (
            "file",
            hex::encode(Sha256::digest(std::fs::read(path).unwrap())),
        )
    } else if kind.is_fifo() {
        ("fifo", String::new())
    } else if kind.is_socket() {
        ("socket", String::new())
    } else {
        ("device", format!("{:x}", meta.rdev()))
    };
    entries.insert(
        name.to_owned(),
        Entry {
            kind,
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: if kind == "folder" { 0 } else { meta.nlink() },
            changed: (meta.mtime(), meta.mtime_nsec()),
            content,
        },
    );
    if kind == "folder" {
        for child in path.read_dir().unwrap() {
            let child = child.unwrap();
            let inner = if name == Path::new(".") {
                child.file_name().into()
            } else {
                name.join(child.file_name())
            };
            visit(&child.path(), &inner, entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn sees_content_mode_time_and_what_came_or_went() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b", "c", "d"] {
            std::fs::write(at(name), name).unwrap();
        }
        let before = Tree::of(folder.path());
        assert_eq!(before.changes_to(&Tree::of(folder.path())), []);
        std::fs::write(at("a"), "other").unwrap();
        std::fs::set_permissions(at("b"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(at("c")).unwrap();
        std::fs::File::options()
            .write(true)
            .open(at("d"))
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        std::fs::write(at("e"), "new").unwrap();
        let said: Vec<_> = before
            .notable_changes_to(&Tree::of(folder.path()))
            .into_iter()
            .map(|change| format!("{} {}", change.path.display(), change.what))
            .collect();
        assert_eq!(
            said,
            ["a content", "b mode", "c gone", "d change time", "e new"]
        );
    }
}
