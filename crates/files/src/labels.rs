//! What the agent reads becomes an incoming event, once a version of a file. What the policy calls
//! sensitive is reported before the open is answered; the rest through a queue that is drained
//! before any effect is decided, so that nothing can be used before it was reported.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};

use kernel::policy::Glob;
use kernel::{Channel, Content, Digest, Incoming, Level, Source};
use monitor::Session;

use crate::bytes::{beginning, digest};
use crate::content::Report;
use crate::path;

/// Text up to this size is handed over whole; larger or binary content by digest.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Sensitive content up to this size is handed over whole, whatever it is.
const SENSITIVE_BYTES_MAX: u64 = 4 << 20;
/// Small files are read at once, larger ones when their turn comes.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// Waiting reports; when there are more, opens wait.
const QUEUE_MAX: usize = 256;

/// Reports what is read.
pub(crate) struct Labels {
    session: Weak<Session>,
    excluded: Vec<Glob>,
    queue: SyncSender<Job>,
    /// Reports that are not delivered yet.
    waiting: Arc<AtomicUsize>,
}

enum Job {
    Report { source: Source, content: Waiting },
    Drained(Sender<()>),
}

/// Content as it waits.
enum Waiting {
    Bytes(Vec<u8>),
    File(Arc<File>, u64),
}

impl Labels {
    /// Starts the thread that delivers; it ends with the trees.
    pub(crate) fn start(session: &Arc<Session>, excluded: Vec<Glob>) -> std::io::Result<Arc<Self>> {
        let (queue, jobs) = sync_channel::<Job>(QUEUE_MAX);
        let session = Arc::downgrade(session);
        let to = Weak::clone(&session);
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("files-labels".to_string())
            .spawn(move || {
                while let Ok(job) = jobs.recv() {
                    match (job, to.upgrade()) {
                        (Job::Report { source, content }, Some(session)) => {
                            deliver(&session, source, content);
                            left.fetch_sub(1, Ordering::SeqCst);
                        }
                        (Job::Report { .. }, None) => {
                            left.fetch_sub(1, Ordering::SeqCst);
                        }
                        (Job::Drained(done), _) => drop(done.send(())),
                    }
                }
            })?;
        Ok(Arc::new(Self {
            session,
            excluded,
            queue,
            waiting,
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
        // Counted before it can be delivered, and before anybody can act on it.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // The thread ends only with the trees.
        let _ = self.queue.send(Job::Report { source, content });
        Ok(())
    }

    /// Returns when everything reported so far was delivered.
    pub(crate) fn drain(&self) {
        // Every effect asks for this, and mostly nothing waits: no other thread has to be woken then.
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (done, waiting) = channel();
        if self.queue.send(Job::Drained(done)).is_ok() {
            let _ = waiting.recv();
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
