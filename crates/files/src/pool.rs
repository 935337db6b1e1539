//! Threads for what would keep the dispatcher waiting. Each begins when there is more to do than the
//! others take, and they end with the file system.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
#[derive(Debug)]
pub(crate) struct Pool {
    name: &'static str,
    most: usize,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Receiver<Job>>,
    threads: AtomicUsize,
    /// Threads that wait for a job.
    idle: AtomicUsize,
    /// Jobs that no thread has taken yet.
    open: AtomicUsize,
}

impl Pool {
    /// At most so many threads.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        let (jobs, queue) = channel::<Job>();
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        Self {
            name,
            most,
            jobs,
            shared,
        }
    }

    pub(crate) fn run(&self, job: Job) {
        let open = self.shared.open.fetch_add(1, Ordering::AcqRel) + 1;
        if open > self.shared.idle.load(Ordering::Acquire) {
            self.begin_another();
        }
        let job = match self.shared.threads.load(Ordering::Acquire) {
            0 => job,
            _ => match self.jobs.send(job) {
                Ok(()) => return,
                Err(refused) => refused.0,
            },
        };
        // There is no thread: the dispatcher does it, late rather than never.
        self.shared.open.fetch_sub(1, Ordering::AcqRel);
        job();
    }

    fn begin_another(&self) {
        let number = self.shared.threads.fetch_add(1, Ordering::AcqRel);
        let shared = Arc::clone(&self.shared);
        let begun = number < self.most
            && std::thread::Builder::new()
                .name(format!("files-{}-{number}", self.name))
                .spawn(move || shared.work())
                .is_ok();
        if !begun {
            self.shared.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Shared {
    fn work(&self) {
        loop {
            self.idle.fetch_add(1, Ordering::AcqRel);
            let job = self.queue.lock().recv();
            self.idle.fetch_sub(1, Ordering::AcqRel);
            let Ok(job) = job else { return };
            self.open.fetch_sub(1, Ordering::AcqRel);
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn jobs_that_wait_for_each_other_have_a_thread_each_and_later_ones_none() {
        let pool = Pool::new("test", 3);
        assert_eq!(pool.shared.threads.load(Ordering::Acquire), 0);
        for _ in 0..20 {
            let barrier = Arc::new(Barrier::new(4));
            for _ in 0..3 {
                let barrier = Arc::clone(&barrier);
                pool.run(Box::new(move || {
                    barrier.wait();
                }));
            }
            barrier.wait();
        }
        assert_eq!(pool.shared.threads.load(Ordering::Acquire), 3);
    }

    #[test]
    fn every_job_is_done_although_there_are_more_than_threads() {
        let pool = Pool::new("test", 2);
        let (tell, told) = channel();
        for n in 0..100 {
            let tell = tell.clone();
            pool.run(Box::new(move || tell.send(n).unwrap()));
        }
        drop((tell, pool));
        let mut all: Vec<i32> = told.iter().collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
