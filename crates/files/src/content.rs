//! Copy-on-write semantics over content and attributes: open, read, write, truncate, chmod,
//! extended attributes. A base file is copied when it is first opened for writing.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use kernel::FileOp;
use rustix::fs::{FallocateFlags, SeekFrom, Timestamps};
use rustix::io::{Errno, Result};

use crate::acl::{self, Acl};
use crate::attr::{Attr, Kind, Time, Version, Xattrs};
use crate::base::xattrs_of_file;
use crate::bytes;
use crate::overlay::{Found, Overlay, privileged, refuse_privileged};
use crate::tree::{Ino, State};
use crate::upper::Entry;

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) truncate: bool,
}

/// What an open gave.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Whether the kernel may keep what it has read before.
    pub(crate) keep_cache: bool,
    /// Base content that the agent can read from now on and that was not reported yet.
    pub(crate) report: Option<Report>,
}

/// Base content to be reported as an incoming event.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) tree: String,
    pub(crate) path: Vec<u8>,
    pub(crate) file: Arc<File>,
    pub(crate) size: u64,
}

/// Attributes to be set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Time>,
    pub(crate) mtime: Option<Time>,
}

impl Overlay {
    pub(crate) fn getattr(&self, ino: Ino) -> Result<Found> {
        let mut state = self.lock();
        state.refresh(ino)?;
        state.found(ino)
    }

    pub(crate) fn setattr(&self, ino: Ino, change: Change) -> Result<Found> {
        let mut grown = false;
        if let Some(size) = change.size {
            self.writable(ino)?;
            self.copy_up(ino, size == 0)?;
            self.data_file(ino)?
                .set_len(size)
                .map_err(|e| bytes::errno(&e))?;
            grown = true;
        }
        let mut state = self.lock();
        let node = state.node(ino)?;
        let (tree, mut attr, kind) = (node.tree, node.attr, node.kind);
        state.tree(tree)?;
        if let Some(mode) = change.mode {
            refuse_privileged(kind, mode)?;
            attr.mode = mode & 0o7777;
        }
        let root = rustix::process::geteuid().is_root();
        for (now, wanted) in [(&mut attr.uid, change.uid), (&mut attr.gid, change.gid)] {
            if let Some(wanted) = wanted {
                if wanted != *now && !root {
                    return Err(Errno::PERM);
                }
                *now = wanted;
            }
        }
        let now = Time::now();
        if grown {
            attr.mtime = now;
        }
        attr.atime = change.atime.unwrap_or(attr.atime);
        attr.mtime = change.mtime.unwrap_or(attr.mtime);
        attr.ctime = now;
        let old = node.attr;
        let owned = (attr.mode, attr.uid, attr.gid) != (old.mode, old.uid, old.gid);
        // Times of staged content are kept by its file.
        let touched = change.atime.is_some() || change.mtime.is_some();
        let timed = node.timed || change.mtime.is_some();
        let staged = owned || change.mtime.is_some() || (touched && node.data.is_none());
        if staged {
            let paths = state.cover_all(ino)?;
            if let Some(path) = paths.first() {
                let op = FileOp::Attributes;
                if owned {
                    self.check(&state, tree, path, op)?;
                }
                let Attr {
                    mode,
                    uid,
                    gid,
                    atime,
                    mtime,
                    ..
                } = attr;
                let path = path.clone();
                let entry = Entry::Attr {
                    path,
                    mode,
                    uid,
                    gid,
                    atime,
                    mtime,
                    timed,
                };
                state.record(tree, &entry)?;
            }
        }
        let node = state.node_mut(ino)?;
        let size = node.attr.size;
        node.attr = Attr { size, ..attr };
        node.attr_staged |= staged;
        node.timed = timed;
        if touched && let (Some(id), file) = (node.data, node.file.clone()) {
            let file = match file {
                Some(file) => file,
                None => Arc::new(state.tree(tree)?.upper.open_data(id)?),
            };
            let times = Timestamps {
                last_access: attr.atime.spec(),
                last_modification: attr.mtime.spec(),
            };
            rustix::fs::futimens(&*file, &times)?;
        }
        state.refresh(ino)?;
        if owned || grown || change.mtime.is_some() {
            state.touch_node(ino);
        }
        state.found(ino)
    }

    pub(crate) fn open(&self, ino: Ino, how: How) -> Result<Opened> {
        if how.write || how.truncate {
            self.writable(ino)?;
            let report = if how.truncate {
                None
            } else {
                self.report_base(ino)?
            };
            self.copy_up(ino, how.truncate)?;
            let opened = self.open_existing(ino, true)?;
            if how.truncate {
                self.truncate(ino)?;
            } else if how.read {
                self.lock().staged_is_read(ino, false);
            }
            return Ok(Opened { report, ..opened });
        }
        let opened = self.open_existing(ino, false)?;
        self.lock().staged_is_read(ino, false);
        Ok(opened)
    }

    /// Takes a handle on a file that was just created.
    pub(crate) fn open_created(&self, ino: Ino) -> Result<()> {
        let mut state = self.lock();
        let node = state.node_mut(ino)?;
        node.opens += 1;
        node.writers += 1;
        Ok(())
    }

    pub(crate) fn release(&self, ino: Ino, write: bool) {
        let mut state = self.lock();
        let Some(node) = state.nodes.get_mut(&ino) else {
            return;
        };
        node.opens = node.opens.saturating_sub(1);
        if write {
            node.writers = node.writers.saturating_sub(1);
        }
        let (unused, staged) = (node.opens == 0, node.data.is_some());
        if unused && !staged {
            node.file = None;
        }
        // What was committed while it was open, or opened and not written, need not stay staged.
        if write && node.writers == 0 && node.data.is_some() && !node.names.is_empty() {
            let tree = node.tree;
            if let Some(tree) = state.trees.get_mut(tree) {
                tree.dirty_nodes.insert(ino, Instant::now());
            }
        }
        if unused && staged {
            // It may be opened again soon.
            state.keep_open(ino);
        }
        state.reap(ino);
    }

    /// What a handle reads from, and base content that is to be reported first because its owner
    /// changed it in place while it was open.
    pub(crate) fn readable(&self, ino: Ino) -> Result<(Arc<File>, Option<Report>)> {
        let mut state = self.lock();
        let file = state.opened(ino)?;
        if self.handleless {
            state.keep_open(ino);
        }
        state.notice(ino)?;
        state.staged_is_read(ino, self.handleless);
        let report = state.report(ino)?;
        Ok((file, report))
    }

    /// Writes to staged content. Where handles are not known of, a copy is made first, and it
    /// counts as open while it is written: it must not be committed under the hands.
    fn writing<T>(&self, ino: Ino, write: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let file = loop {
            if self.handleless && self.lock().node(ino)?.data.is_none() {
                self.writable(ino)?;
                self.copy_up(ino, false)?;
            }
            let mut state = self.lock();
            if state.node(ino)?.data.is_none() {
                if self.handleless {
                    // It was committed in between.
                    continue;
                }
                // A handle for writing made a copy first.
                return Err(Errno::BADF);
            }
            let file = state.opened(ino)?;
            if self.handleless {
                state.keep_open(ino);
                state.node_mut(ino)?.writers += 1;
            }
            break file;
        };
        let done = write(&file);
        if self.handleless {
            let mut state = self.lock();
            state.touch_node(ino);
            if let Some(node) = state.nodes.get_mut(&ino) {
                node.writers = node.writers.saturating_sub(1);
            }
        }
        done
    }

    /// What open handles of a node read and write.
    pub(crate) fn file(&self, ino: Ino) -> Result<Arc<File>> {
        let mut state = self.lock();
        let file = state.opened(ino)?;
        if self.handleless {
            state.keep_open(ino);
        }
        Ok(file)
    }

    pub(crate) fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let write = |file: &File| {
            file.write_all_at(data, offset)
                .map_err(|e| bytes::errno(&e))
        };
        match self.writing(ino, write) {
            Err(Errno::NOSPC) if self.lock().clear_discarded() => self.writing(ino, write)?,
            other => other?,
        }
        let mut state = self.lock();
        let now = Time::now();
        let node = state.node_mut(ino)?;
        node.attr.size = node.attr.size.max(offset + data.len() as u64);
        (node.attr.mtime, node.attr.ctime) = (now, now);
        node.timed = false;
        state.touch_node(ino);
        Ok(())
    }

    pub(crate) fn allocate(&self, ino: Ino, mode: u32, offset: u64, length: u64) -> Result<()> {
        let mode = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        self.writing(ino, |file| {
            rustix::fs::fallocate(file, mode, offset, length)
        })?;
        self.written(ino)
    }

    pub(crate) fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        let file = self.file(ino)?;
        rustix::fs::seek(
            &*file,
            if data {
                SeekFrom::Data(offset)
            } else {
                SeekFrom::Hole(offset)
            },
        )
    }

    pub(crate) fn copy_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        length: usize,
    ) -> Result<usize> {
        let copied = self.writing(to.0, |target| {
            let source = self.file(from.0)?;
            let (mut off_in, mut off_out) = (from.1, to.1);
            match rustix::fs::copy_file_range(
                &*source,
                Some(&mut off_in),
                target,
                Some(&mut off_out),
                length,
            ) {
                // Base and staged content lie on file systems that cannot do it together.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    let mut buffer = vec![0; length.min(1 << 20)];
                    let read = source
                        .read_at(&mut buffer, from.1)
                        .map_err(|e| bytes::errno(&e))?;
                    let bytes = buffer.get(..read).unwrap_or_default();
                    target
                        .write_all_at(bytes, to.1)
                        .map_err(|e| bytes::errno(&e))?;
                    Ok(read)
                }
                other => other,
            }
        })?;
        self.written(to.0)?;
        Ok(copied)
    }

    pub(crate) fn sync(&self, ino: Ino) -> Result<()> {
        let file = self.file(ino)?;
        let (upper, syncs) = {
            let state = self.lock();
            let upper = Arc::clone(&state.tree(state.node(ino)?.tree)?.upper);
            (upper, state.syncs.clone())
        };
        let Some(syncs) = syncs else {
            rustix::fs::fsync(&*file)?;
            return upper.sync().map_err(|e| bytes::errno(&e));
        };
        // Both at once: the file system makes one transaction of it.
        let (told, journal) = std::sync::mpsc::sync_channel(1);
        syncs.run(Box::new(move || {
            // Nobody hears it where the file could not be synced.
            let _ = told.send(upper.sync().map_err(|e| bytes::errno(&e)));
        }));
        rustix::fs::fsync(&*file)?;
        journal.recv().map_err(|_| Errno::IO)?
    }

    /// Extended attributes in the `user.` name space, and access lists as they are kept.
    pub(crate) fn xattrs(&self, ino: Ino) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let (base, path) = {
            let state = self.lock();
            let node = state.node(ino)?;
            match (&node.xattrs, &node.base) {
                (Some(all), _) => return Ok(all.clone()),
                (None, Some(path)) => (Arc::clone(&state.tree(node.tree)?.base), path.clone()),
                (None, None) => return Ok(BTreeMap::new()),
            }
        };
        base.xattrs(&path)
    }

    pub(crate) fn set_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut all = self.xattrs(ino)?;
        match value {
            Some(value) => {
                all.insert(name.to_vec(), value.to_vec());
                let base = {
                    let state = self.lock();
                    Arc::clone(&state.tree(state.node(ino)?.tree)?.base)
                };
                base.takes_xattrs(&all)?;
            }
            None => {
                all.remove(name).ok_or(Errno::NODATA)?;
            }
        }
        let mut state = self.lock();
        let tree = state.node(ino)?.tree;
        let paths = state.cover_all(ino)?;
        if let Some(path) = paths.first() {
            self.check(&state, tree, path, FileOp::Attributes)?;
            state.record(
                tree,
                &Entry::Xattrs {
                    path: path.clone(),
                    all: all.clone(),
                },
            )?;
        }
        let node = state.node_mut(ino)?;
        (node.xattrs, node.passes_on) = (Some(all), None);
        node.attr.ctime = Time::now();
        state.touch_node(ino);
        Ok(())
    }

    /// An access list of a node, with ids of the host; `None` without one.
    pub(crate) fn acl(&self, ino: Ino, name: &[u8]) -> Result<Option<Acl>> {
        let all = self.xattrs(ino)?;
        let mode = self.lock().node(ino)?.attr.mode;
        let list = all.get(name).and_then(|value| Acl::read(value));
        Ok(match name {
            acl::ACCESS => list.map(|list| list.with_mode(mode)),
            _ => list,
        })
    }

    /// Sets or removes an access list; one that counts for opening it says what its mode is.
    pub(crate) fn set_acl(&self, ino: Ino, name: &[u8], list: Option<Acl>) -> Result<()> {
        let (mode, kept) = {
            let state = self.lock();
            let node = state.node(ino)?;
            if !state.tree(node.tree)?.base.keeps_acls() {
                return Err(Errno::OPNOTSUPP);
            }
            (node.attr.mode, name == acl::ACCESS)
        };
        let wanted = list.as_ref().filter(|_| kept).map(Acl::mode);
        let value = list
            .filter(|list| !(kept && list.is_mode()))
            .map(|list| acl::kept(name, list.write()));
        match self.set_xattr(ino, name, value.as_deref()) {
            Err(Errno::NODATA) => {}
            other => other?,
        }
        if let Some(wanted) = wanted
            && wanted != mode & 0o777
        {
            let change = Change {
                mode: Some((mode & !0o777) | wanted),
                ..Change::default()
            };
            self.setattr(ino, change)?;
        }
        Ok(())
    }

    /// Whether opening it for writing has to copy more than a dispatcher should wait for.
    pub(crate) fn copies_much(&self, ino: Ino, how: How) -> bool {
        const QUICK_BYTES: u64 = 256 << 10;
        let state = self.lock();
        how.write
            && !how.truncate
            && state
                .node(ino)
                .is_ok_and(|n| n.data.is_none() && n.attr.size > QUICK_BYTES)
    }

    /// Copies a base file to the private directory, unless that happened before.
    pub(crate) fn copy_up(&self, ino: Ino, truncate: bool) -> Result<()> {
        let mut state = self.lock();
        loop {
            let node = state.node(ino)?;
            if node.kind != Kind::File {
                return Err(if node.kind == Kind::Dir {
                    Errno::ISDIR
                } else {
                    Errno::INVAL
                });
            }
            if node.data.is_some() {
                return Ok(());
            }
            if !node.copying {
                break;
            }
            self.copied.wait(&mut state);
        }
        state.cover_all(ino)?;
        let id = state.fresh_id();
        let node = state.node_mut(ino)?;
        node.copying = true;
        let (tree, base_path, open) = (node.tree, node.base.clone(), node.file.clone());
        let seen = node.seen.clone();
        let (base, upper) = {
            let tree = state.tree(tree)?;
            (Arc::clone(&tree.base), Arc::clone(&tree.upper))
        };
        drop(state);

        let copy = || -> Result<(File, Xattrs)> {
            let target = upper.create_data(id)?;
            let source = match (open, &base_path) {
                (Some(file), _) => Ok(file),
                (None, Some(path)) => base.open_file(path).map(|(file, _)| Arc::new(file)),
                (None, None) => Err(Errno::IO),
            };
            if let (Ok(source), Some(path), Some(seen)) = (&source, &base_path, &seen) {
                upper.keep_base(path, seen, source);
            }
            let xattrs = match &source {
                Ok(source) => xattrs_of_file(source)?,
                Err(_) => Xattrs::new(),
            };
            if !truncate {
                bytes::copy(&*source?, &target)?;
            }
            Ok((target, xattrs))
        };
        let copied = copy();

        let mut state = self.lock();
        let node = state.node_mut(ino)?;
        node.copying = false;
        self.copied.notify_all();
        let (file, xattrs) = match copied {
            Ok(copied) => copied,
            Err(error) => {
                upper.remove_data(id);
                return Err(error);
            }
        };
        // What gives rights to whoever runs it does not outlive a change of the content.
        node.attr.mode &= !privileged(node.attr.mode);
        let Attr {
            mode,
            uid,
            gid,
            mtime,
            atime,
            ..
        } = node.attr;
        let times = Timestamps {
            last_access: atime.spec(),
            last_modification: mtime.spec(),
        };
        rustix::fs::futimens(&file, &times)?;
        node.data = Some(id);
        node.copied_unread = !truncate && !node.reported && !node.by_agent;
        node.attr.size = file.metadata().map_err(|e| bytes::errno(&e))?.len();
        // What was open was the base's.
        node.file = (node.opens > 0).then(|| Arc::new(file));
        if let Some(path) = state.path_of(ino) {
            state.record(
                tree,
                &Entry::Copy {
                    path,
                    id,
                    mode,
                    uid,
                    gid,
                },
            )?;
        }
        // They stay with it, whatever becomes of the place they were read from.
        let bare = state.node(ino)?.xattrs.is_none();
        if bare && !xattrs.is_empty() {
            if let Some(path) = state.path_of(ino) {
                let all = xattrs.clone();
                state.record(tree, &Entry::Xattrs { path, all })?;
            }
            state.node_mut(ino)?.xattrs = Some(xattrs);
        }
        Ok(())
    }

    fn truncate(&self, ino: Ino) -> Result<()> {
        let file = self.file(ino)?;
        file.set_len(0).map_err(|e| bytes::errno(&e))?;
        let mut state = self.lock();
        let now = Time::now();
        let node = state.node_mut(ino)?;
        node.attr.size = 0;
        (node.attr.mtime, node.attr.ctime) = (now, now);
        state.touch_node(ino);
        Ok(())
    }

    fn writable(&self, ino: Ino) -> Result<()> {
        let state = self.lock();
        let node = state.node(ino)?;
        state.tree(node.tree)?;
        match state.path_of(ino) {
            Some(path) if node.base.is_some() => {
                self.check(&state, node.tree, &path, FileOp::Modify)
            }
            _ => Ok(()),
        }
    }

    fn open_existing(&self, ino: Ino, write: bool) -> Result<Opened> {
        let mut state = self.lock();
        let node = state.node(ino)?;
        if node.kind != Kind::File {
            return Err(if node.kind == Kind::Dir {
                Errno::ISDIR
            } else {
                Errno::NXIO
            });
        }
        if !write && state.is_as_reported(ino)? {
            // The kernel may have all of it; the file is opened when it asks for some.
            state.node_mut(ino)?.opens += 1;
            return Ok(Opened {
                keep_cache: true,
                report: None,
            });
        }
        state.opened(ino)?;
        let keep_cache = !state.notice(ino)?;
        let report = state.report(ino)?;
        let node = state.node_mut(ino)?;
        node.opens += 1;
        if write {
            node.writers += 1;
        }
        Ok(Opened { keep_cache, report })
    }

    /// Base content that becomes readable through a copy, if it was never reported.
    fn report_base(&self, ino: Ino) -> Result<Option<Report>> {
        let mut state = self.lock();
        let node = state.node(ino)?;
        if node.data.is_some() || node.reported || node.by_agent || node.kind != Kind::File {
            return Ok(None);
        }
        if node.file.is_none() {
            let Some(path) = &node.base else {
                return Ok(None);
            };
            let file = Arc::new(state.tree(node.tree)?.base.open_file(path)?.0);
            state.node_mut(ino)?.file = Some(Arc::clone(&file));
            let report = state.report(ino);
            let node = state.node_mut(ino)?;
            if node.opens == 0 {
                node.file = None;
            }
            return report;
        }
        state.report(ino)
    }

    fn data_file(&self, ino: Ino) -> Result<Arc<File>> {
        let state = self.lock();
        let node = state.node(ino)?;
        match (&node.file, node.data) {
            (Some(file), _) => Ok(Arc::clone(file)),
            (None, Some(id)) => Ok(Arc::new(state.tree(node.tree)?.upper.open_data(id)?)),
            (None, None) => Err(Errno::BADF),
        }
    }

    /// The size may have changed by other means than a write.
    fn written(&self, ino: Ino) -> Result<()> {
        let mut state = self.lock();
        let now = Time::now();
        let node = state.node_mut(ino)?;
        (node.attr.mtime, node.attr.ctime) = (now, now);
        state.refresh(ino)?;
        state.touch_node(ino);
        Ok(())
    }
}

impl State {
    /// The file of a node that is open inside.
    pub(crate) fn opened(&mut self, ino: Ino) -> Result<Arc<File>> {
        let node = self.node(ino)?;
        if let Some(file) = &node.file {
            return Ok(Arc::clone(file));
        }
        let tree = self.tree(node.tree)?;
        let file = match (node.data, &node.base) {
            (Some(id), _) => tree.upper.open_data(id)?,
            (None, Some(path)) => tree.base.open_file(path)?.0,
            (None, None) => return Err(Errno::IO),
        };
        let file = Arc::new(file);
        self.node_mut(ino)?.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Keeps the file of a node open although no handle needs it, or is known to, for a while.
    pub(crate) fn keep_open(&mut self, ino: Ino) {
        const KEPT_MAX: usize = 256;
        if self.kept_open.back() == Some(&ino) {
            return;
        }
        self.kept_open.push_back(ino);
        if self.kept_open.len() > KEPT_MAX
            && let Some(oldest) = self.kept_open.pop_front()
            && !self.kept_open.contains(&oldest)
            && let Some(node) = self.nodes.get_mut(&oldest)
            && node.opens == 0
            // Without a name nothing else leads to it.
            && !node.names.is_empty()
        {
            node.file = None;
        }
    }

    /// Whether the base still has the version of a file that was reported, told by a look from
    /// outside.
    fn is_as_reported(&self, ino: Ino) -> Result<bool> {
        let node = self.node(ino)?;
        let (None, None, Some(path), Some(seen)) = (node.data, &node.file, &node.base, &node.seen)
        else {
            return Ok(false);
        };
        if !node.reported && !node.by_agent {
            return Ok(false);
        }
        let Ok(stat) = self.tree(node.tree)?.base.stat(path) else {
            return Ok(false);
        };
        let now = Version::of(&stat);
        Ok(now.kind == Kind::File
            && (seen.size, seen.mtime, seen.dev, seen.ino)
                == (now.size, now.mtime, now.dev, now.ino))
    }

    /// Reads size and blocks of staged content from its file.
    pub(crate) fn refresh(&mut self, ino: Ino) -> Result<()> {
        let node = self.node(ino)?;
        let Some(id) = node.data else { return Ok(()) };
        let stat = match &node.file {
            Some(file) => rustix::fs::fstat(&**file)?,
            None => self.tree(node.tree)?.upper.stat_data(id)?,
        };
        let now = Attr::of(&stat);
        let node = self.node_mut(ino)?;
        (node.attr.size, node.attr.blocks) = (now.size, now.blocks);
        Ok(())
    }

    /// Covers the base at every name of a node; returns its paths.
    pub(crate) fn cover_all(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let node = self.node(ino)?;
        let mut paths = Vec::new();
        if self.tree(node.tree)?.root == ino {
            let (tree, seen) = (node.tree, node.seen.clone());
            self.cover_with(tree, &Vec::new(), seen)?;
            return Ok(vec![Vec::new()]);
        }
        for (parent, name) in node.names.clone() {
            let path = self.path_in(parent, &name)?;
            self.cover(parent, &name, &path)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Notices that the owner changed an open base file since the agent last looked: another
    /// version, to be read and reported anew.
    fn notice(&mut self, ino: Ino) -> Result<bool> {
        let node = self.node(ino)?;
        let (None, Some(file)) = (node.data, &node.file) else {
            return Ok(false);
        };
        let stat = rustix::fs::fstat(&**file)?;
        let now = Version::of(&stat);
        let known = node.seen.as_ref().is_some_and(|seen| {
            (seen.size, seen.mtime, seen.ino) == (now.size, now.mtime, now.ino)
        });
        if known {
            return Ok(false);
        }
        let node = self.node_mut(ino)?;
        node.seen = Some(now);
        node.reported = false;
        node.by_agent = false;
        if !node.attr_staged {
            node.attr = Attr {
                nlink: node.attr.nlink,
                ..Attr::of(&stat)
            };
        }
        Ok(true)
    }

    fn report(&mut self, ino: Ino) -> Result<Option<Report>> {
        let node = self.node_mut(ino)?;
        if node.reported || node.by_agent || (node.data.is_some() && !node.copied_unread) {
            return Ok(None);
        }
        let (Some(path), Some(file)) = (node.base.clone(), node.file.clone()) else {
            return Ok(None);
        };
        node.reported = true;
        node.copied_unread = false;
        let (tree, size) = (node.tree, node.attr.size);
        Ok(Some(Report {
            tree: self.tree(tree)?.name.clone(),
            path,
            file,
            size,
        }))
    }
}
