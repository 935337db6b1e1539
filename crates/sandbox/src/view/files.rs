//! Files that exist only in the agent's view, or replace one there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::View;
use super::mounts::{
    attach_to, clone_at, clone_at_name, make_file, move_to_name, open_in, raw, set_read_only,
    tmpfs, write_all,
};
use crate::SandboxError;
use crate::error::During;
use crate::plan::SyntheticFile;

/// Places synthetic files one after the other.
pub(super) struct Files<'a> {
    view: &'a View,
    shadows: Vec<PathBuf>,
}

impl<'a> Files<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self {
            view,
            shadows: Vec::new(),
        }
    }

    pub(super) fn place(&mut self, file: &SyntheticFile) -> Result<(), SandboxError> {
        self.try_place(file)
            .during_with(|| format!("make the file `{}`", file.path.display()))
    }

    /// What was opened for changes becomes read-only. By path, because a directory that was
    /// copied later holds another mount of the same copy.
    pub(super) fn finish(self) -> Result<(), SandboxError> {
        let step = "close a directory for changes";
        for path in self.shadows {
            set_read_only(&self.view.locate(&path).during(step)?, false).during(step)?;
        }
        Ok(())
    }

    /// Over the file that is there; where a link leads if nothing is there; else anew.
    fn try_place(&mut self, file: &SyntheticFile) -> rustix::io::Result<()> {
        let mut path = file.path.clone();
        for _ in 0..LINKS_MAX {
            match self.view.locate(&path) {
                Ok(_) if file.writable => {
                    let flags = OFlags::WRONLY | OFlags::TRUNC;
                    let existing = open_in(&self.view.root, &path, flags)?;
                    return write_all(&existing, &file.content);
                }
                Ok(existing) => return attach_to(&self.cover(file)?, &existing),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
            let parent_path = path.parent().unwrap_or(Path::new("/")).to_owned();
            let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
            let parent = self.writable_directory(&parent_path, file)?;
            if let Ok(link) = rustix::fs::readlinkat(&parent, &name, Vec::new()) {
                path = parent_path.join(OsStr::from_bytes(link.as_bytes()));
                continue;
            }
            if file.writable {
                return make_file(&parent, &name, file.mode, &file.content);
            }
            match make_file(&parent, &name, file.mode, &[]) {
                Err(Errno::ROFS) => {
                    self.shadow(&parent_path)?;
                    let parent = self.view.locate(&parent_path)?;
                    make_file(&parent, &name, file.mode, &[])?;
                }
                other => other?,
            }
            return attach_to(&self.cover(file)?, &self.view.locate(&path)?);
        }
        Err(Errno::LOOP)
    }

    /// The directory, made with its parents; where that fails because one of them is read-only,
    /// in a copy of that one.
    fn writable_directory(
        &mut self,
        path: &Path,
        file: &SyntheticFile,
    ) -> rustix::io::Result<OwnedFd> {
        match self.view.directory(path) {
            Err(Errno::ROFS) if !file.writable => {}
            other => return other,
        }
        let existing = path
            .ancestors()
            .find(|ancestor| self.view.locate(ancestor).is_ok());
        self.shadow(existing.unwrap_or(Path::new("/")))?;
        self.view.directory(path)
    }

    /// A read-only mount of just this file.
    fn cover(&self, file: &SyntheticFile) -> rustix::io::Result<OwnedFd> {
        let held = &self.view.held;
        held.set(held.get() + 1);
        let name = PathBuf::from(held.get().to_string());
        make_file(
            &self.view.holder,
            name.as_os_str(),
            file.mode,
            &file.content,
        )?;
        // The name stays: the kernel attaches no mount of a removed file.
        let cover = clone_at(&self.view.holder, &name)?;
        set_read_only(&cover, false).map_err(raw)?;
        Ok(cover)
    }

    /// Replaces a read-only directory by a copy in which a file can be made: links are copied,
    /// everything else is mounted from where it was.
    fn shadow(&mut self, path: &Path) -> rustix::io::Result<()> {
        let original = open_in(&self.view.root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let copy = tmpfs(0o755, None)?;
        attach_to(&copy, &self.view.locate(path)?)?;
        for entry in rustix::fs::Dir::read_from(&original)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match entry.file_type() {
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&original, name, Vec::new())?;
                    rustix::fs::symlinkat(target, &copy, name)?;
                }
                FileType::Directory => {
                    let tree = clone_at_name(&original, name)?;
                    rustix::fs::mkdirat(&copy, name, Mode::from_raw_mode(0o755))?;
                    move_to_name(&tree, &copy, name)?;
                }
                FileType::RegularFile => {
                    let tree = clone_at_name(&original, name)?;
                    make_file(&copy, OsStr::from_bytes(name.to_bytes()), 0o444, &[])?;
                    move_to_name(&tree, &copy, name)?;
                }
                // A socket or device of the host is better left out.
                _ => {}
            }
        }
        self.shadows.push(path.to_owned());
        Ok(())
    }
}

/// As many links are followed to where a file is to be.
const LINKS_MAX: usize = 8;
