//! What the owner, or another session, makes and removes in directories that were looked at: the kernel
//! tells us (inotify) and the view follows. Nothing is asked again and again, so that what the agent's
//! kernel remembers of names stays good for as long as nobody changes them.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::{Errno, Result};

use crate::attr::{Attr, Kind, Time};
use crate::base::Base;
use crate::commit::TEMP_PREFIX;
use crate::listing::Slot;
use crate::outcome::Stale;
use crate::path::{Rel, join, lies_at};
use crate::tree::{Ino, State};
use crate::trees::Trees;

/// Directories beyond what may be watched are looked at in turn: so many each time.
const LOOKED_AT_ONCE: usize = 500;
const LOOK_EACH: Duration = Duration::from_secs(1);
/// A session takes this part of the watches that its user may have.
const SHARE: usize = 4;
const WATCHES_IF_UNKNOWN: usize = 8192;

/// When names in a directory were changed, and when anything was.
type Times = (Time, Time);

/// Directories of the base that are watched.
#[derive(Debug)]
pub(crate) struct Watches {
    queue: OwnedFd,
    dirs: HashMap<i32, Ino>,
    watched: HashSet<Ino>,
    room: usize,
    /// Those beyond what may be watched, with their times when they were looked at.
    others: Vec<(Ino, Option<Times>)>,
    next: usize,
    looked: Instant,
    /// To be compared with the base in full.
    look_again: HashSet<Ino>,
    /// Names that cannot follow before what the agent did with them is decided.
    later: HashSet<(Ino, Vec<u8>)>,
}

impl Watches {
    fn new() -> Result<Self> {
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
        let limit = limit.ok().and_then(|text| text.trim().parse().ok());
        Ok(Self {
            queue: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            dirs: HashMap::new(),
            watched: HashSet::new(),
            room: limit.unwrap_or(WATCHES_IF_UNKNOWN * SHARE) / SHARE,
            others: Vec::new(),
            next: 0,
            looked: Instant::now(),
            look_again: HashSet::new(),
            later: HashSet::new(),
        })
    }

    /// Watches a directory, before its names are read.
    fn watch(&mut self, base: &Base, path: &[u8], ino: Ino) {
        if !self.watched.insert(ino) {
            return;
        }
        let names = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        let watched = base.dir_now(path).and_then(|dir| {
            if self.dirs.len() >= self.room {
                return Err(Errno::NOSPC);
            }
            let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
            inotify::add_watch(&self.queue, path, names)
        });
        match watched {
            Ok(watch) => drop(self.dirs.insert(watch, ino)),
            Err(_) => self.others.push((ino, times(base, path))),
        }
    }

    /// Takes what has happened: names in directories.
    fn take(&mut self) -> Vec<(Ino, Vec<u8>)> {
        let mut news = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.look_again.extend(self.dirs.values());
            } else if event.events().contains(ReadFlags::IGNORED) {
                if let Some(ino) = self.dirs.remove(&event.wd()) {
                    self.watched.remove(&ino);
                }
            } else if let (Some(ino), Some(name)) = (self.dirs.get(&event.wd()), event.file_name())
            {
                news.push((*ino, name.to_bytes().to_vec()));
            }
        }
        news
    }

    /// The next directories that are not watched.
    fn turn(&mut self) -> Vec<(usize, Ino, Option<Times>)> {
        if self.others.is_empty() || self.looked.elapsed() < LOOK_EACH {
            return Vec::new();
        }
        self.looked = Instant::now();
        let count = self.others.len().min(LOOKED_AT_ONCE);
        let first = self.next;
        self.next = (first + count) % self.others.len();
        (first..first + count)
            .map(|at| at % self.others.len())
            .filter_map(|at| self.others.get(at).map(|(ino, times)| (at, *ino, *times)))
            .collect()
    }
}

impl Trees {
    /// From now on what changes in directories that are looked at is seen inside.
    pub(crate) fn start_watching(&self) {
        match Watches::new() {
            Ok(watches) => self.overlay.lock().watch_from_now_on(watches),
            Err(error) => tracing::warn!(
                "what appears in the workspace while the agent runs is not seen by it: {error}"
            ),
        }
    }

    /// Lets the view follow what happened in the base.
    pub(crate) fn follow_base(&self) {
        let mut stale = Vec::new();
        let followed = self.overlay.lock().follow_base(&mut stale);
        if let Err(error) = followed {
            tracing::warn!("cannot follow what happens in the workspace: {error}");
        }
        if !stale.is_empty() {
            self.tell_kernel(stale);
        }
    }
}

impl State {
    fn watch_from_now_on(&mut self, mut watches: Watches) {
        let loaded = |ino: &Ino| {
            let dir = self.nodes.get(ino).and_then(|node| node.dir.as_ref());
            dir.is_some_and(|listing| listing.loaded)
        };
        watches.look_again = self.nodes.keys().copied().filter(loaded).collect();
        self.watches = Some(watches);
    }

    /// A directory of the base is about to be read.
    pub(crate) fn watch(&mut self, ino: Ino) {
        let Some(mut watches) = self.watches.take_if(|_| !self.replay) else {
            return;
        };
        if let Some(node) = self.nodes.get(&ino)
            && let (Some(path), Some(tree)) = (&node.base, self.trees.get(node.tree))
        {
            watches.watch(&tree.base, path, ino);
        }
        self.watches = Some(watches);
    }

    /// A directory has another place in the base, or one at all.
    pub(crate) fn look_again(&mut self, ino: Ino) {
        if let Some(watches) = &mut self.watches {
            watches.watched.remove(&ino);
            watches.look_again.insert(ino);
        }
    }

    fn follow_base(&mut self, stale: &mut Vec<Stale>) -> Result<()> {
        let Some(watches) = &mut self.watches else {
            return Ok(());
        };
        let mut names: HashSet<(Ino, Vec<u8>)> = watches.take().into_iter().collect();
        names.extend(std::mem::take(&mut watches.later));
        let turn = watches.turn();
        for (at, ino, before) in turn {
            let now = self.node(ino).ok().and_then(|node| {
                let tree = self.trees.get(node.tree)?;
                times(&tree.base, node.base.as_deref()?)
            });
            if now != before
                && let Some(watches) = &mut self.watches
            {
                watches.look_again.insert(ino);
                if let Some(other) = watches.others.get_mut(at) {
                    other.1 = now;
                }
            }
        }
        let again = self
            .watches
            .as_mut()
            .map(|w| std::mem::take(&mut w.look_again));
        for ino in again.into_iter().flatten() {
            self.differing(ino, &mut names)?;
        }
        for (parent, name) in names {
            if !self.follow(parent, &name, stale)?
                && let Some(watches) = &mut self.watches
            {
                watches.later.insert((parent, name));
            }
        }
        Ok(())
    }

    /// Names that a directory has in the view and not in the base, or the other way round.
    fn differing(&mut self, ino: Ino, names: &mut HashSet<(Ino, Vec<u8>)>) -> Result<()> {
        let loaded = |node: &crate::tree::Node| node.dir.as_ref().is_some_and(|dir| dir.loaded);
        let Some(node) = self.nodes.get(&ino).filter(|node| loaded(node)) else {
            return Ok(());
        };
        let (Some(path), tree) = (node.base.clone(), node.tree) else {
            return Ok(());
        };
        let base = Arc::clone(&self.tree(tree)?.base);
        self.watch(ino);
        let there: HashSet<Vec<u8>> = match base.list(&path) {
            Ok(list) => list.into_iter().map(|(name, _)| name).collect(),
            // It goes itself.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(listing) = self.nodes.get(&ino).and_then(|node| node.dir.as_ref()) else {
            return Ok(());
        };
        let gone = listing.after(0).map(|(_, name)| name.to_vec());
        let gone = gone.filter(|name| !there.contains(name));
        names.extend(gone.map(|name| (ino, name)));
        let new = there.iter().filter(|name| listing.find(name).is_none());
        names.extend(new.map(|name| (ino, name.clone())));
        Ok(())
    }

    /// Shows a name as the base has it now, unless the agent changed it. Says whether that is settled.
    fn follow(&mut self, parent: Ino, name: &[u8], stale: &mut Vec<Stale>) -> Result<bool> {
        let Some(node) = self.nodes.get(&parent) else {
            return Ok(true);
        };
        let (Some(above), index) = (&node.base, node.tree) else {
            return Ok(true);
        };
        let path = join(above, name);
        let tree = self.tree(index)?;
        let moved = self.path_in(parent, name).ok().as_ref() != Some(&path);
        if moved || name.starts_with(TEMP_PREFIX.as_bytes()) || tree.base.hides(&path) {
            return Ok(true);
        }
        let there = match tree.base.version(&path) {
            Ok(there) => there.map(|version| version.kind),
            Err(_) => return Ok(true),
        };
        let slot = node.dir.as_ref().and_then(|listing| listing.find(name));
        if self.is_as_shown(slot, there) {
            return Ok(true);
        }
        if self.is_changed(index, &path, slot) {
            return Ok(false);
        }
        let was_dir = slot.is_some_and(|slot| slot.kind == Some(Kind::Dir));
        match slot.and_then(|slot| slot.ino) {
            Some(child) => {
                self.forget_identity(child);
                stale.push(Stale::Node(child));
                self.unlink(parent, name)?;
            }
            None => drop(self.detach(parent, name)?),
        }
        let node = self.node_mut(parent)?;
        if let (Some(kind), Some(listing)) = (there, node.dir.as_mut()) {
            listing.set(name, Some(kind), None);
        }
        self.dir_moved_on(
            parent,
            there == Some(Kind::Dir),
            was_dir && slot.is_some_and(|s| s.ino.is_none()),
        )?;
        stale.push(Stale::Name(parent, name.to_vec()));
        stale.push(Stale::Node(parent));
        Ok(true)
    }

    fn is_as_shown(&self, slot: Option<Slot>, there: Option<Kind>) -> bool {
        match (slot, there) {
            (None, None) => true,
            (Some(slot), Some(there)) => {
                let node = slot.ino.and_then(|ino| self.nodes.get(&ino));
                node.map(|node| node.kind)
                    .or(slot.kind)
                    .is_none_or(|kind| kind == there)
            }
            _ => false,
        }
    }

    /// Whether what the view shows at a path, or below it, is the agent's.
    fn is_changed(&self, index: usize, path: &Rel, slot: Option<Slot>) -> bool {
        let Some(tree) = self.trees.get(index) else {
            return true;
        };
        let covers = |other: &Rel| lies_at(other, path);
        let child = slot.and_then(|slot| slot.ino);
        let node = child.and_then(|ino| self.nodes.get(&ino));
        let own = node.is_some_and(|node| {
            !node.clean() || node.base.as_ref() != Some(path) || node.writers > 0
        });
        own || tree.covered.keys().any(covers) || tree.dirty.keys().any(covers)
    }

    /// A directory's times and number of directories after its owner changed names in it.
    fn dir_moved_on(&mut self, ino: Ino, came: bool, went: bool) -> Result<()> {
        let node = self.node(ino)?;
        let path = node.base.clone().unwrap_or_default();
        let stat = self.tree(node.tree)?.base.stat(&path)?;
        let clean = node.clean();
        let node = self.node_mut(ino)?;
        let now = Attr::of(&stat);
        if clean {
            (node.attr.mtime, node.attr.ctime) = (now.mtime, now.ctime);
        } else {
            (node.attr.mtime, node.attr.ctime) = (Time::now(), Time::now());
        }
        if node.attr.nlink > 1 {
            let links = node.attr.nlink + u32::from(came);
            node.attr.nlink = links.saturating_sub(u32::from(went)).max(2);
        }
        Ok(())
    }
}

fn times(base: &Base, path: &[u8]) -> Option<Times> {
    let attr = Attr::of(&base.stat(path).ok()?);
    Some((attr.mtime, attr.ctime))
}
