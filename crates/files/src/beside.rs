//! Keeps the dispatcher on the processor of the task that it serves, while one task makes most of
//! the requests.
//!
//! A request is a switch to the dispatcher and back. On one processor that costs a few
//! microseconds; across two, each way is an interrupt to a processor that has gone to sleep, which
//! costs ten times as much on virtual machines. The scheduler likes to spread the two, since one is
//! always idle. It leaves a task where it is if whoever wakes it would give way to anybody: so the
//! dispatcher follows the task, and gives way. Then nothing runs that did not run before, no
//! processor is kept awake, and an answered task goes on at once.
//!
//! A thread that gives way to everybody can be starved: a watcher looks after it and makes an
//! ordinary thread of it as soon as something waits for it. Where a thread may not become ordinary
//! again (see [`sys::give_way`]), all of this is left out.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::sys;

/// So many requests of one task in a row, each this soon after the one before, and it is followed.
const ENOUGH: u32 = 16;
const SOON: Duration = Duration::from_millis(2);
/// How often is looked whether it still is where the dispatcher is, in requests.
const LOOK_EACH: u32 = 8;
/// In so many requests, so many by another task than the one before or moves are too many.
const COUNTED: u32 = 64;
const CHANGES_MAX: u32 = 24;
/// How often the watcher looks, and after how many quiet looks it ends.
const WATCH_EACH: Duration = Duration::from_millis(2);
const QUIET_LOOKS: u32 = 10;
/// Fewer requests than this from one look to the next, with one waiting at both, are too slow.
const LEAST: u64 = 8;
/// How long it is not tried again after trouble; doubled each time, up to so often. Trouble that comes
/// after it went well for a while has nothing to do with the one before.
const AGAIN_MS: u64 = 20;
const STRIKES_MAX: u32 = 5;
const WELL_MS: u64 = 50;

/// The dispatcher's place.
pub(crate) struct Beside {
    shared: Arc<Shared>,
    run: Mutex<Run>,
    /// Where tasks are looked up by the ids in requests.
    tasks: PathBuf,
    /// Set once it is known that the dispatcher may become ordinary again.
    usable: Arc<AtomicBool>,
}

/// What the watcher sees.
struct Shared {
    began: Instant,
    requests: AtomicU64,
    answered: AtomicU64,
    together: AtomicBool,
    dispatcher: AtomicI32,
    everywhere: CpuSet,
    /// Not before this many milliseconds.
    not_before: AtomicU64,
    /// When they came together.
    since: AtomicU64,
    strikes: AtomicU32,
    stopping: AtomicBool,
    asleep: Mutex<()>,
    wake: Condvar,
}

/// The latest requests.
struct Run {
    task: u32,
    same: u32,
    counted: u32,
    changes: u32,
    last: Instant,
    given_way: u64,
}

/// A request being answered.
pub(crate) struct Turn<'a>(Option<&'a Shared>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.answered.fetch_add(1, Ordering::Release);
        }
    }
}

impl Beside {
    /// For a dispatcher of `device`, whose requests name tasks as `tasks` (a `/proc`) does.
    pub(crate) fn start(device: OwnedFd, tasks: Option<PathBuf>) -> std::io::Result<Self> {
        let everywhere = sched_getaffinity(None)?;
        let shared = Arc::new(Shared {
            began: Instant::now(),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            together: AtomicBool::new(false),
            dispatcher: AtomicI32::new(0),
            everywhere,
            not_before: AtomicU64::new(0),
            since: AtomicU64::new(0),
            strikes: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let usable = Arc::new(AtomicBool::new(false));
        if tasks.is_some() && shared.everywhere.count() > 1 {
            let (shared, usable) = (Arc::clone(&shared), Arc::clone(&usable));
            std::thread::Builder::new()
                .name("files-beside".to_string())
                .spawn(move || {
                    // On a busy machine this takes a while: nobody waits for it.
                    if may_come_back() {
                        usable.store(true, Ordering::Release);
                        shared.watch(&device);
                    }
                })?;
        }
        Ok(Self {
            shared,
            run: Mutex::new(Run {
                task: 0,
                same: 0,
                counted: 0,
                changes: 0,
                last: Instant::now(),
                given_way: 0,
            }),
            tasks: tasks.unwrap_or_default(),
            usable,
        })
    }

    /// Takes note of a request of a task.
    pub(crate) fn begin(&self, task: u32) -> Turn<'_> {
        if task == 0 || !self.usable.load(Ordering::Acquire) {
            return Turn(None);
        }
        let shared = &*self.shared;
        shared.requests.fetch_add(1, Ordering::Release);
        let mut run = self.run.lock();
        let now = Instant::now();
        let soon = now - run.last < SOON;
        run.last = now;
        run.counted += 1;
        let changed = run.task != task;
        if changed {
            run.task = task;
            run.same = 0;
            run.changes += 1;
        } else {
            run.same = if soon { run.same + 1 } else { 0 };
        }
        if run.counted >= COUNTED {
            let many = run.changes > CHANGES_MAX;
            run.counted = 0;
            run.changes = 0;
            if many && shared.together.load(Ordering::Acquire) {
                shared.part(true);
            }
        }
        if shared.together.load(Ordering::Acquire) {
            if changed || run.counted.is_multiple_of(LOOK_EACH) {
                self.follow(&mut run, changed);
            }
        } else if run.same >= ENOUGH && shared.now() >= shared.not_before.load(Ordering::Relaxed) {
            run.same = 0;
            self.join(&mut run);
        }
        Turn(Some(shared))
    }

    fn join(&self, run: &mut Run) {
        let shared = &*self.shared;
        let Some(processor) = self.processor_of(run.task) else {
            // Not to be asked again with every request.
            shared
                .not_before
                .store(shared.now() + 1000, Ordering::Relaxed);
            return;
        };
        shared
            .dispatcher
            .store(gettid().as_raw_nonzero().get(), Ordering::Release);
        run.counted = 0;
        run.changes = 0;
        shared.since.store(shared.now(), Ordering::Relaxed);
        {
            let _asleep = shared.asleep.lock();
            shared.together.store(true, Ordering::Release);
            shared.wake.notify_one();
        }
        if sys::give_way(0, true).is_ok() {
            only_on(processor);
        }
        run.given_way = sys::given_way();
    }

    /// Where an answered task goes on at once, the dispatcher had to give way.
    fn follow(&self, run: &mut Run, changed: bool) {
        let given_way = sys::given_way();
        let ways = given_way - run.given_way;
        run.given_way = given_way;
        if !changed && ways >= u64::from(LOOK_EACH / 2) {
            return;
        }
        if let Some(processor) = self.processor_of(run.task)
            && processor != sched_getcpu()
        {
            only_on(processor);
            run.changes += 1;
        }
    }

    fn processor_of(&self, task: u32) -> Option<usize> {
        /// Counted from behind the name, which may hold anything.
        const PROCESSOR: usize = 37;
        let text = std::fs::read(self.tasks.join(task.to_string()).join("stat")).ok()?;
        let behind = text.rsplit(|byte| *byte == b')').next()?;
        let field = behind.split(|byte| *byte == b' ').nth(PROCESSOR)?;
        std::str::from_utf8(field).ok()?.parse().ok()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _asleep = self.shared.asleep.lock();
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The dispatcher is a thread like any other again.
    fn part(&self, trouble: bool) {
        self.together.store(false, Ordering::Release);
        let dispatcher = self.dispatcher.load(Ordering::Acquire);
        if let Err(error) = sys::give_way(dispatcher, false) {
            tracing::warn!("cannot make the file server an ordinary thread again: {error}");
        }
        let _ = sched_setaffinity(Pid::from_raw(dispatcher), &self.everywhere);
        let since = self.since.load(Ordering::Relaxed);
        let well = self.now().saturating_sub(since) >= WELL_MS;
        let before = match well {
            true => 0,
            false => self.strikes.load(Ordering::Relaxed),
        };
        let strikes = match trouble {
            true => (before + 1).min(STRIKES_MAX),
            false => before.saturating_sub(1),
        };
        self.strikes.store(strikes, Ordering::Relaxed);
        let wait = if trouble { AGAIN_MS << strikes } else { 0 };
        self.not_before.store(self.now() + wait, Ordering::Relaxed);
    }

    fn watch(&self, device: &OwnedFd) {
        loop {
            let mut asleep = self.asleep.lock();
            while !self.together.load(Ordering::Acquire) {
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                self.wake.wait(&mut asleep);
            }
            drop(asleep);
            self.look_after(device);
        }
    }

    fn look_after(&self, device: &OwnedFd) {
        let mut seen = 0;
        let mut quiet = 0;
        let mut waited = false;
        while self.together.load(Ordering::Acquire) {
            {
                let mut asleep = self.asleep.lock();
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                self.wake.wait_for(&mut asleep, WATCH_EACH);
            }
            let requests = self.requests.load(Ordering::Acquire);
            let waiting = waits(device) || requests != self.answered.load(Ordering::Acquire);
            let slow = requests - seen < LEAST && waiting && waited;
            waited = waiting;
            if requests != seen && !slow {
                (seen, quiet) = (requests, 0);
                continue;
            }
            seen = requests;
            quiet += 1;
            let starved = slow || waiting;
            if starved || quiet >= QUIET_LOOKS {
                self.part(starved);
            }
        }
    }
}

/// Whether a thread that gives way to everybody may become ordinary again. Tried by this one, which
/// ends if it may not.
fn may_come_back() -> bool {
    sys::give_way(0, true)
        .and_then(|()| sys::give_way(0, false))
        .is_ok()
}

fn only_on(processor: usize) {
    let mut one = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        one.set(processor);
        // It may have been taken away; then everything stays as it is.
        let _ = sched_setaffinity(None, &one);
    }
}

/// Whether a request waits to be taken.
fn waits(device: &OwnedFd) -> bool {
    let mut one = [PollFd::new(device, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut one, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
