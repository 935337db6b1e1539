//! What the agent reads becomes an incoming event, once a version of a file. What the policy calls
//! sensitive is reported before the open is answered; the rest through a queue that is drained
//! before any effect is decided, so that nothing can be used before it was reported.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kernel::policy::Glob;
use kernel::{Channel, Content, Digest, Incoming, Level, Source};
use monitor::Session;
use parking_lot::{Condvar, Mutex};

use crate::bytes::{beginning, digest};
use crate::content::Report;
use crate::path;

/// Text up to this size is handed over whole; larger or binary content by digest.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Sensitive content up to this size is handed over whole, whatever it is.
const SENSITIVE_BYTES_MAX: u64 = 4 << 20;
/// Small files are read at once, larger ones when their turn comes.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// Waiting reports, and what they hold in memory; when there are more, opens wait.
const QUEUE_MAX: usize = 1024;
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// How often the queue is looked into while more come, and after how many looks in vain no longer.
const LOOK_EACH: Duration = Duration::from_millis(1);
const QUIET_LOOKS: u32 = 20;

/// Reports what is read.
pub(crate) struct Labels {
    session: Weak<Session>,
    excluded: Vec<Glob>,
    queue: Arc<Queue>,
}

/// Reports on their way. Whoever puts one in does not wake the thread that delivers, which looks by
/// itself while more come: waking it costs more than all the rest of an open.
#[derive(Default)]
struct Queue {
    line: Mutex<Line>,
    work: Condvar,
    room: Condvar,
    done: Condvar,
    /// Reports that are not delivered yet.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    bytes: usize,
    put: u64,
    delivered: u64,
    /// Nobody looks until told.
    asleep: bool,
    ended: bool,
}

struct Job {
    source: Source,
    content: Waiting,
}

/// Content as it waits.
enum Waiting {
    Bytes(Vec<u8>),
    File(Arc<File>, u64),
}

impl Labels {
    /// Starts the thread that delivers; it ends with the trees.
    pub(crate) fn start(session: &Arc<Session>, excluded: Vec<Glob>) -> std::io::Result<Arc<Self>> {
        let queue = Arc::<Queue>::default();
        let session = Arc::downgrade(session);
        let (from, to) = (Arc::clone(&queue), Weak::clone(&session));
        std::thread::Builder::new()
            .name("files-labels".to_string())
            .spawn(move || from.deliver_until_ended(&to))?;
        Ok(Arc::new(Self {
            session,
            excluded,
            queue,
        }))
    }

    /// Takes note of content that the agent can read as soon as this returns.
    ///
    /// # Errors
    /// When sensitive content cannot be read for it; the agent must not read it then.
    pub(crate) fn report(&self, report: Report) -> std::io::Result<()> {
        let Some(session) = self.session.upgrade() else {
            return Ok(());
        };
        let path = path::text(&report.path);
        let excluded = self.excluded.iter().any(|glob| glob.matches(&path));
        let source = Source::Location {
            tree: report.tree,
            path,
        };
        if session.policy().sensitivity(&source) > Level::Public {
            let content = whole(&report.file, SENSITIVE_BYTES_MAX)?;
            session.incoming(Incoming {
                channel: Channel::File,
                source,
                content,
                leaves: Vec::new(),
                answers: None,
                layer: None,
            });
            return Ok(());
        }
        if excluded {
            return Ok(());
        }
        let content = if report.size <= AT_ONCE_BYTES_MAX {
            let mut bytes = vec![0; usize::try_from(report.size).unwrap_or(0)];
            match report.file.read_at(&mut bytes, 0) {
                Ok(read) if read == bytes.len() => Waiting::Bytes(bytes),
                _ => Waiting::File(report.file, report.size),
            }
        } else {
            Waiting::File(report.file, report.size)
        };
        self.queue.put(Job { source, content });
        Ok(())
    }

    /// Returns when everything reported so far was delivered.
    pub(crate) fn drain(&self) {
        self.queue.drain();
    }
}

impl Drop for Labels {
    fn drop(&mut self) {
        self.queue.line.lock().ended = true;
        self.queue.work.notify_one();
    }
}

impl Queue {
    fn put(&self, job: Job) {
        let mut line = self.line.lock();
        while line.full() {
            self.work.notify_one();
            self.room.wait(&mut line);
        }
        // Counted before it can be delivered, and before anybody can act on it.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        line.put += 1;
        line.bytes += job.content.held();
        line.jobs.push_back(job);
        if line.asleep {
            line.asleep = false;
            self.work.notify_one();
        }
    }

    fn drain(&self) {
        // Every effect asks for this, and mostly nothing waits: no other thread has to be woken then.
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut line = self.line.lock();
        let put = line.put;
        line.asleep = false;
        self.work.notify_one();
        while line.delivered < put {
            self.done.wait(&mut line);
        }
    }

    fn deliver_until_ended(&self, session: &Weak<Session>) {
        let mut quiet = 0;
        loop {
            let mut line = self.line.lock();
            while line.jobs.is_empty() {
                if line.ended {
                    return;
                }
                if quiet < QUIET_LOOKS {
                    quiet += 1;
                    self.work.wait_for(&mut line, LOOK_EACH);
                } else {
                    line.asleep = true;
                    self.work.wait(&mut line);
                    quiet = 0;
                }
            }
            quiet = 0;
            let jobs = std::mem::take(&mut line.jobs);
            line.bytes = 0;
            self.room.notify_all();
            drop(line);
            for job in jobs {
                if let Some(session) = session.upgrade() {
                    deliver(&session, job.source, job.content);
                }
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                let mut line = self.line.lock();
                line.delivered += 1;
                self.done.notify_all();
            }
        }
    }
}

impl Line {
    fn full(&self) -> bool {
        self.jobs.len() >= QUEUE_MAX || self.bytes >= QUEUE_BYTES_MAX
    }
}

impl Waiting {
    fn held(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(..) => 0,
        }
    }
}

fn deliver(session: &Session, source: Source, content: Waiting) {
    let content = match content {
        Waiting::Bytes(bytes) => text_or_digest(bytes),
        Waiting::File(file, size) if size <= TEXT_BYTES_MAX => {
            match beginning(&file, TEXT_BYTES_MAX) {
                Ok(bytes) => text_or_digest(bytes),
                Err(_) => return,
            }
        }
        Waiting::File(file, _) => match digest(&file) {
            Ok(digest) => Content {
                bytes: Vec::new().into(),
                digest,
            },
            Err(_) => return,
        },
    };
    session.incoming(Incoming {
        channel: Channel::File,
        source,
        content,
        leaves: Vec::new(),
        answers: None,
        layer: None,
    });
}

fn text_or_digest(bytes: Vec<u8>) -> Content {
    let binary = bytes.iter().take(8192).any(|b| *b == 0);
    if binary {
        Content {
            digest: Digest::of(&bytes),
            bytes: Vec::new().into(),
        }
    } else {
        Content::new(bytes)
    }
}

fn whole(file: &File, max: u64) -> std::io::Result<Content> {
    let digest = digest(file)?;
    let bytes = beginning(file, max)?;
    Ok(Content {
        bytes: bytes.into(),
        digest,
    })
}
