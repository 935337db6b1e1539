//! Who read what is staged and not decided, and what they changed afterwards: a change builds on the
//! held ones that whoever made it had read. Who it was is told by the process of a request: what a process
//! had read when it started another goes with that one. What flows through pipes, sockets or somebody's
//! memory is not seen here.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use kernel::HoldId;

use crate::tree::Ino;

/// Counts reads, so that it is known what was read before a change.
type Order = u64;
/// Time since the machine started, as `/proc` counts it for processes.
type Ticks = u64;

/// What `/proc` counts in.
const TICKS_PER_S: u64 = 100;
/// How long a task id is known to be of the same process without a look.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// So many processes above one are looked at.
const ABOVE_MAX: usize = 64;
/// So many processes are remembered before those are forgotten that read nothing.
const PROCESSES_MAX: usize = 1 << 16;
/// So many refused changes are remembered, for what was made from them and is not decided yet.
const REFUSED_MAX: usize = 4096;
/// Stands for everybody, where it is not known who reads.
const EVERYBODY: Known = Known(0);

thread_local! {
    static ASKER: Cell<u32> = const { Cell::new(0) };
}

/// The task whose request this thread answers, for as long as it lives.
pub(crate) struct Asker(());

impl Asker {
    pub(crate) fn is(task: u32) -> Self {
        ASKER.set(task);
        Self(())
    }

    /// Whom this thread works for; 0 for nobody inside.
    pub(crate) fn now() -> u32 {
        ASKER.get()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        ASKER.set(0);
    }
}

/// A process as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Known(u64);

#[derive(Debug)]
struct Process {
    started: Ticks,
    parent: Option<Known>,
    seen: HashMap<Ino, Seen>,
}

/// When a process first read a version of a file.
#[derive(Clone, Copy, Debug)]
struct Seen {
    order: Order,
    at: Ticks,
}

/// By whom something was changed, and what they had read by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    process: Known,
    first: Order,
    last: Order,
}

/// A refused change.
#[derive(Clone, Copy, Debug)]
struct Refused {
    ino: Ino,
    hold: HoldId,
    order: Order,
}

/// All reads of what is staged.
#[derive(Debug)]
pub(crate) struct Reads {
    tasks: Option<PathBuf>,
    processes: HashMap<Known, Process>,
    by_task: HashMap<u32, (Known, Instant)>,
    order: Order,
    /// Versions that are in place or gone: reads of them before that count no more.
    ended: HashMap<Ino, Order>,
    refused: Vec<Refused>,
    /// What was read for the first time since somebody asked.
    news: HashSet<Ino>,
    any: bool,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            tasks: None,
            processes: HashMap::new(),
            by_task: HashMap::new(),
            order: 1,
            ended: HashMap::new(),
            refused: Vec::new(),
            news: HashSet::new(),
            any: false,
        }
    }

    /// Where tasks are looked up by the ids that requests bring. Without it nobody is known.
    pub(crate) fn look_up_in(&mut self, tasks: PathBuf) {
        self.tasks = Some(tasks);
    }

    /// Takes note that whoever asks can read the staged content of a node.
    pub(crate) fn read(&mut self, ino: Ino) {
        if let Some(process) = self.asker() {
            self.read_by(process, ino);
        }
    }

    /// The same where it is not known who reads: everybody.
    pub(crate) fn read_by_everybody(&mut self, ino: Ino) {
        self.processes.entry(EVERYBODY).or_insert_with(|| Process {
            started: 0,
            parent: None,
            seen: HashMap::new(),
        });
        self.read_by(EVERYBODY, ino);
    }

    fn read_by(&mut self, process: Known, ino: Ino) {
        let ended = self.ended.get(&ino).copied().unwrap_or(0);
        let next = self.order + 1;
        let Some(process) = self.processes.get_mut(&process) else {
            return;
        };
        if process.seen.get(&ino).is_some_and(|s| s.order > ended) {
            return;
        }
        let at = now();
        process.seen.insert(ino, Seen { order: next, at });
        self.order = next;
        self.any = true;
        self.news.insert(ino);
    }

    /// The stamp of a change that is made now; `None` when nothing staged was read by anybody.
    pub(crate) fn stamp(&mut self) -> Option<Stamp> {
        if !self.any {
            return None;
        }
        let process = self.asker()?;
        Some(Stamp {
            process,
            first: self.order,
            last: self.order,
        })
    }

    /// Whether whoever left one of the stamps had read a version of a node that is still undecided.
    pub(crate) fn saw(&self, stamps: &[Stamp], ino: Ino) -> bool {
        let ended = self.ended.get(&ino).copied().unwrap_or(0);
        let undecided = |order: Order| order > ended;
        stamps
            .iter()
            .any(|stamp| self.had_read(stamp, ino, stamp.last).is_some_and(undecided))
    }

    /// Refused changes that something was made from before they were refused.
    pub(crate) fn refused(&self, stamps: &[Stamp]) -> Vec<HoldId> {
        let made_before = |refused: &&Refused| {
            stamps.iter().any(|stamp| {
                stamp.first <= refused.order
                    && self
                        .had_read(stamp, refused.ino, stamp.last.min(refused.order))
                        .is_some()
            })
        };
        self.refused
            .iter()
            .filter(made_before)
            .map(|refused| refused.hold)
            .collect()
    }

    /// The staged version of a node is in place, or gone.
    pub(crate) fn end(&mut self, ino: Ino) {
        if self.any {
            self.ended.insert(ino, self.order);
            self.news.remove(&ino);
        }
    }

    /// The staged version of a node is refused: what was made from it until now must not happen.
    pub(crate) fn refuse(&mut self, ino: Ino, hold: HoldId) {
        if !self.any {
            return;
        }
        if self.refused.len() >= REFUSED_MAX {
            self.refused.remove(0);
        }
        let order = self.order;
        self.refused.push(Refused { ino, hold, order });
        self.end(ino);
        // What is made from now on comes after it.
        self.order += 1;
    }

    /// Another node took the place of one: whoever had read that one had read this.
    pub(crate) fn replaced(&mut self, old: Ino, new: Ino) {
        if !self.any || old == new {
            return;
        }
        let ended = self.ended.get(&old).copied().unwrap_or(0);
        for process in self.processes.values_mut() {
            if let Some(seen) = process.seen.get(&old).copied()
                && seen.order > ended
            {
                process.seen.entry(new).or_insert(seen);
                self.news.insert(new);
            }
        }
    }

    /// What was read for the first time since this was called before.
    pub(crate) fn news(&mut self) -> HashSet<Ino> {
        std::mem::take(&mut self.news)
    }

    /// When a process, one above it before it was started, or everybody had read a node, up to an
    /// order.
    fn had_read(&self, stamp: &Stamp, ino: Ino, until: Order) -> Option<Order> {
        let by = |known: Known| self.processes.get(&known);
        let everybody = by(EVERYBODY).and_then(|all| all.seen.get(&ino));
        let mut found = everybody.map(|s| s.order).filter(|order| *order <= until);
        let mut at = by(stamp.process);
        let mut started = Ticks::MAX;
        for _ in 0..ABOVE_MAX {
            let Some(process) = at else { break };
            if let Some(seen) = process.seen.get(&ino)
                && seen.order <= until
                && seen.at <= started
            {
                found = found.max(Some(seen.order));
            }
            started = started.min(process.started);
            at = process.parent.and_then(by);
        }
        found
    }

    fn asker(&mut self) -> Option<Known> {
        let task = Asker::now();
        if task == 0 || self.tasks.is_none() {
            return None;
        }
        if let Some((known, looked)) = self.by_task.get(&task)
            && looked.elapsed() < KNOWN_FOR
        {
            return Some(*known);
        }
        let known = self.look_up(task, 0)?;
        self.by_task.insert(task, (known, Instant::now()));
        Some(known)
    }

    fn look_up(&mut self, task: u32, above: usize) -> Option<Known> {
        let found = self
            .tasks
            .as_ref()
            .and_then(|tasks| Looked::at(tasks, task))?;
        if found.process != task {
            // A thread: its process is what counts.
            return self.look_up_process(found.process, above);
        }
        self.known(found, above)
    }

    fn look_up_process(&mut self, process: u32, above: usize) -> Option<Known> {
        let found = self
            .tasks
            .as_ref()
            .and_then(|tasks| Looked::at(tasks, process))?;
        self.known(found, above)
    }

    fn known(&mut self, found: Looked, above: usize) -> Option<Known> {
        // A process is known by its number and its start.
        let known = Known((u64::from(found.process) << 40) ^ (found.started & ((1 << 40) - 1)));
        if self.processes.contains_key(&known) {
            return Some(known);
        }
        self.forget_some();
        let parent = (found.parent > 1 && above < ABOVE_MAX)
            .then(|| self.look_up_process(found.parent, above + 1))
            .flatten();
        let process = Process {
            started: found.started,
            parent,
            seen: HashMap::new(),
        };
        self.processes.insert(known, process);
        Some(known)
    }

    fn forget_some(&mut self) {
        if self.processes.len() < PROCESSES_MAX {
            return;
        }
        let ended = &self.ended;
        let refused: HashSet<Ino> = self.refused.iter().map(|refused| refused.ino).collect();
        for process in self.processes.values_mut() {
            process.seen.retain(|ino, seen| {
                refused.contains(ino) || ended.get(ino).is_none_or(|ended| seen.order > *ended)
            });
        }
        let parents: HashSet<Known> = self.processes.values().filter_map(|p| p.parent).collect();
        self.processes
            .retain(|known, process| !process.seen.is_empty() || parents.contains(known));
        self.by_task.clear();
    }
}

impl Stamp {
    /// Adds a stamp to those of a node; one a process.
    pub(crate) fn add_to(self, stamps: &mut Vec<Self>) {
        match stamps.iter_mut().rev().find(|s| s.process == self.process) {
            Some(stamp) => stamp.last = self.last,
            None => stamps.push(self),
        }
    }
}

/// What `/proc` says of a task.
struct Looked {
    process: u32,
    parent: u32,
    started: Ticks,
}

impl Looked {
    fn at(tasks: &std::path::Path, task: u32) -> Option<Self> {
        /// Counted from behind the name, which may hold anything.
        const PARENT: usize = 2;
        const STARTED: usize = 20;
        let place = tasks.join(task.to_string());
        let text = std::fs::read(place.join("stat")).ok()?;
        let behind = text.rsplit(|byte| *byte == b')').next()?;
        let field = |n: usize| -> Option<u64> {
            let field = behind.split(|byte| *byte == b' ').nth(n)?;
            std::str::from_utf8(field).ok()?.parse().ok()
        };
        let status = std::fs::read_to_string(place.join("status")).ok()?;
        let process = status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:"))?
            .trim()
            .parse()
            .ok()?;
        Some(Self {
            process,
            parent: u32::try_from(field(PARENT)?).ok()?,
            started: field(STARTED)?,
        })
    }
}

fn now() -> Ticks {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let hundredths = u64::try_from(now.tv_nsec).unwrap_or(0) / (1_000_000_000 / TICKS_PER_S);
    seconds * TICKS_PER_S + hundredths
}
