//! Files of staged content before they are needed, and afterwards: while many are made in a row, they are
//! made ahead, and what nothing needs any more is closed and removed, by threads that nobody waits for.
//! An agent that unpacks or builds makes and removes thousands.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use rustix::io::{Errno, Result};

use crate::pool::Pool;
use crate::tree::State;
use crate::upper::Upper;

/// So many made in a row, each this soon after the one before, and the next ones are made ahead.
const IN_A_ROW: u32 = 8;
const SOON: Duration = Duration::from_millis(5);
/// So many at a time, once no more than so many are left.
const AHEAD: usize = 48;
const LEFT: usize = 16;
/// One that has waited for longer says itself how old it is not.
const FRESH_FOR: Duration = Duration::from_millis(10);
/// So many contents are removed together.
const TOGETHER: usize = 32;
/// A larger content gives its room back at once.
const SMALL_BYTES: u64 = 64 << 10;

/// Files that are ready for new content, empty and under their numbers.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    files: VecDeque<Made>,
    /// Some are being made.
    making: bool,
    in_a_row: u32,
    last: Option<Instant>,
    ended: bool,
}

#[derive(Debug)]
struct Made {
    id: u64,
    file: File,
    at: Instant,
}

/// A content that nothing needs any more.
#[derive(Debug)]
pub(crate) struct Discarded {
    upper: Arc<Upper>,
    id: u64,
    /// Closed with it.
    _file: Option<Arc<File>>,
}

impl Ready {
    /// Takes note that one is needed, and says how many more are to be made.
    fn wanted(&mut self) -> usize {
        let now = Instant::now();
        let soon = self.last.is_some_and(|last| now - last < SOON);
        self.last = Some(now);
        self.in_a_row = if soon { self.in_a_row + 1 } else { 0 };
        if self.making || self.ended || self.in_a_row < IN_A_ROW || self.files.len() > LEFT {
            return 0;
        }
        self.making = true;
        AHEAD
    }

    fn take(&mut self) -> Option<(u64, File)> {
        let made = self.files.pop_front()?;
        if made.at.elapsed() > FRESH_FOR {
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_NOW,
            };
            let times = Timestamps {
                last_access: now,
                last_modification: now,
            };
            // Only one that is never written shows them, and only after a crash.
            let _ = rustix::fs::futimens(&made.file, &times);
        }
        Some((made.id, made.file))
    }
}

impl Upper {
    /// The numbers of files that are ready.
    pub(crate) fn ready_ids(&self) -> Vec<u64> {
        self.ready().files.iter().map(|made| made.id).collect()
    }

    /// Makes files ready under these numbers, as far as it can.
    fn make_ready(&self, ids: &[u64]) {
        for id in ids {
            // Whoever needs one makes it and is told why not.
            let Ok(file) = self.create_data(*id) else {
                break;
            };
            let mut ready = self.ready();
            if ready.ended {
                drop(ready);
                self.remove_data(*id);
                break;
            }
            let at = Instant::now();
            ready.files.push_back(Made { id: *id, file, at });
        }
        self.ready().making = false;
    }

    fn end_ready(&self) {
        let mut ready = self.ready();
        ready.ended = true;
        let files = std::mem::take(&mut ready.files);
        drop(ready);
        for made in files {
            self.remove_data(made.id);
        }
    }
}

impl State {
    /// A file for new content, and its number.
    pub(crate) fn content_file(&mut self, tree: usize) -> Result<(u64, File)> {
        let upper = Arc::clone(&self.tree(tree)?.upper);
        if let Some(behind) = self.behind.clone() {
            let wanted = upper.ready().wanted();
            if wanted > 0 {
                let ids: Vec<u64> = (0..wanted).map(|_| self.fresh_id()).collect();
                let upper = Arc::clone(&upper);
                behind.run(Box::new(move || upper.make_ready(&ids)));
            }
            if let Some(taken) = upper.ready().take() {
                return Ok(taken);
            }
        }
        let id = self.fresh_id();
        let file = match upper.create_data(id) {
            Err(Errno::NOSPC) if self.clear_discarded() => upper.create_data(id),
            other => other,
        };
        Ok((id, file?))
    }

    /// Nothing needs a content any more.
    pub(crate) fn discard(&mut self, tree: usize, id: u64, bytes: u64, file: Option<Arc<File>>) {
        let Some(upper) = self.trees.get(tree).map(|tree| &tree.upper) else {
            return;
        };
        let Some(behind) = self.behind.as_ref().filter(|_| bytes <= SMALL_BYTES) else {
            return upper.remove_data(id);
        };
        self.discarded.push(Discarded {
            upper: Arc::clone(upper),
            id,
            _file: file,
        });
        if self.discarded.len() >= TOGETHER {
            let discarded = std::mem::take(&mut self.discarded);
            behind.run(Box::new(move || remove(discarded)));
        }
    }

    /// Removes what waits for it; says whether anything did.
    pub(crate) fn clear_discarded(&mut self) -> bool {
        let discarded = std::mem::take(&mut self.discarded);
        let any = !discarded.is_empty();
        remove(discarded);
        any
    }

    /// From now on things are done by these threads: what nobody waits for, and syncs of the journal while
    /// a file is synced.
    pub(crate) fn begin_behind(&mut self, behind: Arc<Pool>, syncs: Option<Arc<Pool>>) {
        (self.behind, self.syncs) = (Some(behind), syncs);
    }

    /// From now on everything is done when it is needed.
    pub(crate) fn end_behind(&mut self) {
        self.behind = None;
        self.clear_discarded();
        for tree in &self.trees {
            tree.upper.end_ready();
        }
    }
}

fn remove(discarded: Vec<Discarded>) {
    for one in discarded {
        one.upper.remove_data(one.id);
    }
}
