//! In which directories the temporary names lie that are to be put in place later: their owner may move
//! a directory away meanwhile, and nothing of ours stays in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::attr::Version;

/// Directories by the numbers of the events whose new versions lie in them.
#[derive(Debug, Default)]
pub(crate) struct MadeIn(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    dirs: HashMap<(u64, u64), Arc<OwnedFd>>,
    events: HashMap<u64, (u64, u64)>,
}

impl MadeIn {
    /// An event's new version was made there.
    pub(crate) fn note(&self, event: u64, dir: &OwnedFd) {
        let Some(key) = key(dir) else { return };
        let mut known = self.0.lock();
        if let Entry::Vacant(free) = known.dirs.entry(key) {
            // Without one of its own it is looked for by its path, as after a crash.
            let Ok(dir) = rustix::io::fcntl_dupfd_cloexec(dir, 0) else {
                return;
            };
            free.insert(Arc::new(dir));
        }
        known.events.insert(event, key);
    }

    /// Where it was made; it is no longer remembered then.
    pub(crate) fn take(&self, event: u64) -> Option<Arc<OwnedFd>> {
        let mut known = self.0.lock();
        let key = known.events.remove(&event)?;
        let dir = known.dirs.get(&key).cloned();
        if known.events.is_empty() {
            known.dirs.clear();
        }
        dir
    }
}

/// Whether two descriptors are of one directory.
pub(crate) fn same_dir(one: &OwnedFd, other: &OwnedFd) -> bool {
    key(one).is_some() && key(one) == key(other)
}

fn key(dir: &OwnedFd) -> Option<(u64, u64)> {
    let version = Version::of(&rustix::fs::fstat(dir).ok()?);
    Some((version.dev, version.ino))
}
