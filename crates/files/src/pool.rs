//! Threads for what would keep the dispatcher waiting. They end with the file system.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name(format!("files-{name}-{number}"))
                .spawn(move || work(&queue))?;
        }
        Ok(Self { jobs })
    }

    pub(crate) fn run(&self, job: Job) {
        if let Err(refused) = self.jobs.send(job) {
            // No thread is left: the dispatcher does it, late rather than never.
            (refused.0)();
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
