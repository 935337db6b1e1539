//! Who read what is staged and not decided, and what they changed afterwards: a change builds on the
//! held ones that whoever made it knew. Who it was is told by the process of a request: what a process
//! knew when it started another goes with that one, and who reads a file knows what those knew who wrote
//! it, by then, whatever becomes of that file. What flows through pipes, sockets or somebody's memory is
//! not seen here.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use kernel::HoldId;

use crate::path::Rel;
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
/// So many times of reading what one process wrote are told apart.
const LINKS_MAX: usize = 8;
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
    /// Whose writing it has read.
    links: HashMap<Known, Vec<Link>>,
}

/// A process has read what another one wrote: from then on it knows what that one knew when it wrote.
#[derive(Clone, Copy, Debug)]
struct Link {
    order: Order,
    at: Ticks,
    last: Order,
}

/// A process that counts for what was known when something was made, and up to when.
#[derive(Clone, Copy, Debug)]
struct Knew {
    process: Known,
    /// When what was made was begun.
    first: Order,
    until: Order,
    before: Ticks,
}

/// All of those.
#[derive(Debug, Default)]
pub(crate) struct Knowing(Vec<Knew>);

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
    /// Nodes that were read at a path of a tree since it was last decided: another may lie there by now.
    at_place: HashMap<usize, HashMap<Rel, HashSet<Ino>>>,
    /// Nodes that anybody has read at all.
    read: HashSet<Ino>,
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
            at_place: HashMap::new(),
            read: HashSet::new(),
            news: HashSet::new(),
            any: false,
        }
    }

    /// Where tasks are looked up by the ids that requests bring. Without it nobody is known.
    pub(crate) fn look_up_in(&mut self, tasks: PathBuf) {
        self.tasks = Some(tasks);
    }

    /// Takes note that whoever asks can read what is staged of a node, if anything is, and what was made by
    /// those who left the stamps. Says whether it is the first time.
    pub(crate) fn read(&mut self, staged: Option<Ino>, stamps: &[Stamp]) -> bool {
        self.asker()
            .is_some_and(|process| self.read_by(process, staged, stamps))
    }

    /// The same where it is not known who reads: everybody.
    pub(crate) fn read_by_everybody(&mut self, staged: Option<Ino>, stamps: &[Stamp]) -> bool {
        self.processes
            .entry(EVERYBODY)
            .or_insert_with(|| Process::new(0, None));
        self.read_by(EVERYBODY, staged, stamps)
    }

    fn read_by(&mut self, reader: Known, staged: Option<Ino>, stamps: &[Stamp]) -> bool {
        for stamp in stamps {
            self.link(reader, stamp);
        }
        let Some(ino) = staged else { return false };
        let ended = self.ended.get(&ino).copied().unwrap_or(0);
        let next = self.order + 1;
        let Some(process) = self.processes.get_mut(&reader) else {
            return false;
        };
        if process.seen.get(&ino).is_some_and(|s| s.order > ended) {
            return false;
        }
        let at = now();
        process.seen.insert(ino, Seen { order: next, at });
        self.read.insert(ino);
        self.order = next;
        self.any = true;
        self.news.insert(ino);
        true
    }

    fn link(&mut self, reader: Known, stamp: &Stamp) {
        if stamp.process == reader || !self.knows_anything(stamp.process) {
            return;
        }
        let next = self.order + 1;
        let Some(process) = self.processes.get_mut(&reader) else {
            return;
        };
        let links = process.links.entry(stamp.process).or_default();
        if links.iter().any(|link| link.last >= stamp.last) {
            return;
        }
        let mut link = Link {
            order: next,
            at: now(),
            last: stamp.last,
        };
        if links.len() >= LINKS_MAX {
            // In doubt it knew all of it from the beginning.
            for old in links.drain(..) {
                link.order = link.order.min(old.order);
                link.at = link.at.min(old.at);
                link.last = link.last.max(old.last);
            }
        }
        links.push(link);
        self.order = next;
    }

    fn knows_anything(&self, process: Known) -> bool {
        let by = |known: &Known| self.processes.get(known);
        let all = by(&EVERYBODY);
        std::iter::successors(by(&process), |p| p.parent.as_ref().and_then(by))
            .take(ABOVE_MAX)
            .chain(all)
            .any(|p| !p.seen.is_empty() || !p.links.is_empty())
    }

    /// A node was read at a path, and is not decided.
    pub(crate) fn read_at(&mut self, tree: usize, path: Rel, ino: Ino) {
        let places = self.at_place.entry(tree).or_default();
        places.entry(path).or_default().insert(ino);
    }

    /// Nodes that were read at a path since it was last decided.
    pub(crate) fn ones_at(&self, tree: usize, path: &Rel) -> impl Iterator<Item = Ino> {
        let there = self.at_place.get(&tree).and_then(|places| places.get(path));
        there.into_iter().flatten().copied()
    }

    /// A path is decided.
    pub(crate) fn end_at(&mut self, tree: usize, path: &Rel) {
        if let Some(places) = self.at_place.get_mut(&tree) {
            places.remove(path);
        }
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

    /// Who counts for what was known by those who left the stamps: they themselves, those above them before
    /// they started, and whose writing one of these had read by then.
    pub(crate) fn knowing(&self, stamps: &[Stamp]) -> Knowing {
        let mut found = Knowing::default();
        let mut open: Vec<Knew> = Vec::new();
        for stamp in stamps {
            let knew = |process| Knew {
                process,
                first: stamp.first,
                until: stamp.last,
                before: Ticks::MAX,
            };
            open.extend([knew(stamp.process), knew(EVERYBODY)]);
        }
        let mut visited: HashMap<Known, Vec<usize>> = HashMap::new();
        while let Some(knew) = open.pop() {
            let Some(process) = self.processes.get(&knew.process) else {
                continue;
            };
            let before = visited.entry(knew.process).or_default();
            if before
                .iter()
                .filter_map(|at| found.0.get(*at))
                .any(|old| old.covers(&knew))
            {
                continue;
            }
            before.push(found.0.len());
            found.0.push(knew);
            open.extend(process.parent.map(|parent| Knew {
                process: parent,
                before: knew.before.min(process.started),
                ..knew
            }));
            for (writer, links) in &process.links {
                let read = links
                    .iter()
                    .filter(|link| link.order <= knew.until && link.at <= knew.before)
                    .map(|link| link.last)
                    .max();
                let Some(until) = read else { continue };
                for process in [*writer, EVERYBODY] {
                    open.push(Knew {
                        process,
                        first: knew.first,
                        until,
                        before: Ticks::MAX,
                    });
                }
            }
        }
        found
    }

    /// Whether a version of a node that is still undecided was known.
    pub(crate) fn knew(&self, knowing: &Knowing, ino: Ino) -> bool {
        if !self.read.contains(&ino) {
            return false;
        }
        let ended = self.ended.get(&ino).copied().unwrap_or(0);
        knowing.0.iter().any(|knew| {
            self.had_read(knew, ino)
                .is_some_and(|order| order > ended && order <= knew.until)
        })
    }

    /// Those of some nodes of which a version that is still undecided was known.
    pub(crate) fn known_of<T>(&self, knowing: &Knowing, some: &HashMap<Ino, T>) -> Vec<Ino> {
        let known = some.keys().filter(|ino| self.knew(knowing, **ino));
        known.copied().collect()
    }

    /// Refused changes that something was made from before they were refused.
    pub(crate) fn refused(&self, knowing: &Knowing) -> Vec<HoldId> {
        let made_before = |refused: &&Refused| {
            knowing.0.iter().any(|knew| {
                knew.first <= refused.order
                    && self
                        .had_read(knew, refused.ino)
                        .is_some_and(|order| order <= knew.until.min(refused.order))
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
                self.read.insert(new);
            }
        }
    }

    /// What was read for the first time since this was called before.
    pub(crate) fn news(&mut self) -> HashSet<Ino> {
        std::mem::take(&mut self.news)
    }

    /// When a process had first read a node, if it was in time.
    fn had_read(&self, knew: &Knew, ino: Ino) -> Option<Order> {
        let seen = self.processes.get(&knew.process)?.seen.get(&ino)?;
        (seen.at <= knew.before).then_some(seen.order)
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
        let tasks = self.tasks.as_ref()?;
        let mut found = Looked::at(tasks, task)?;
        if found.process != task {
            // A thread: its process is what counts.
            found = Looked::at(tasks, found.process)?;
        }
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
            .then(|| self.look_up(found.parent, above + 1))
            .flatten();
        let process = Process::new(found.started, parent);
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
        // Something may have been made by one that knew nothing but by those above it.
        let knowing: HashSet<Known> = self
            .processes
            .keys()
            .filter(|known| self.knows_anything(**known))
            .copied()
            .collect();
        let parents: HashSet<Known> = self.processes.values().filter_map(|p| p.parent).collect();
        self.processes
            .retain(|known, _| knowing.contains(known) || parents.contains(known));
        self.by_task.clear();
    }
}

impl Process {
    fn new(started: Ticks, parent: Option<Known>) -> Self {
        Self {
            started,
            parent,
            seen: HashMap::new(),
            links: HashMap::new(),
        }
    }
}

impl Knew {
    /// Whether another one adds nothing to this.
    fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && self.until >= other.until && self.before >= other.before
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
