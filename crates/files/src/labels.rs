//! What the agent reads becomes an incoming event, once a version of a file. What the policy calls
//! sensitive is reported before the open is answered; the rest through a queue that is drained
//! before any effect is decided, so that nothing can be used before it was reported.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};

use kernel::policy::Glob;
use kernel::{Channel, Content, Digest, Incoming, Level, Source};
use monitor::Session;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

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
    session: Option<Arc<Session>>,
    excluded: Vec<Glob>,
    queue: Mutex<Option<SyncSender<Job>>>,
}

enum Job {
    Report { source: Source, content: Read_ },
    Drained(Sender<()>),
}

/// Content as it waits.
enum Read_ {
    Bytes(Vec<u8>),
    File(Arc<File>, u64),
}

impl Labels {
    /// Without a session nothing is reported (a tree opened for repair).
    pub(crate) fn start(
        session: Option<Arc<Session>>,
        excluded: Vec<Glob>,
    ) -> std::io::Result<Arc<Self>> {
        let queue = match &session {
            None => None,
            Some(session) => {
                let (sender, receiver) = sync_channel::<Job>(QUEUE_MAX);
                let session = Arc::clone(session);
                std::thread::Builder::new()
                    .name("files-labels".to_string())
                    .spawn(move || {
                        while let Ok(job) = receiver.recv() {
                            match job {
                                Job::Report { source, content } => {
                                    deliver(&session, source, content)
                                }
                                Job::Drained(done) => drop(done.send(())),
                            }
                        }
                    })?;
                Some(sender)
            }
        };
        Ok(Arc::new(Self {
            session,
            excluded,
            queue: Mutex::new(queue),
        }))
    }

    /// Takes note of content that the agent can read as soon as this returns.
    pub(crate) fn report(&self, report: Report) {
        let Some(session) = &self.session else { return };
        let path = path::text(&report.path);
        let excluded = self.excluded.iter().any(|glob| glob.matches(&path));
        let source = Source::Location {
            tree: report.tree,
            path,
        };
        if session.policy().sensitivity(&source) > Level::Public {
            let content = whole(&report.file, SENSITIVE_BYTES_MAX).unwrap_or_else(|_| Content {
                bytes: Vec::new().into(),
                digest: Digest::default(),
            });
            session.incoming(Incoming {
                channel: Channel::File,
                source,
                content,
            });
            return;
        }
        if excluded {
            return;
        }
        let content = if report.size <= AT_ONCE_BYTES_MAX {
            let mut bytes = vec![0; usize::try_from(report.size).unwrap_or(0)];
            match report.file.read_at(&mut bytes, 0) {
                Ok(read) if read == bytes.len() => Read_::Bytes(bytes),
                _ => Read_::File(report.file, report.size),
            }
        } else {
            Read_::File(report.file, report.size)
        };
        let sender = self.queue.lock().clone();
        if let Some(sender) = sender {
            // The worker ends only with the session.
            let _ = sender.send(Job::Report { source, content });
        }
    }

    /// Returns when everything reported so far was delivered.
    pub(crate) fn drain(&self) {
        let sender = self.queue.lock().clone();
        let Some(sender) = sender else { return };
        let (done, waiting) = channel();
        if sender.send(Job::Drained(done)).is_ok() {
            let _ = waiting.recv();
        }
    }
}

fn deliver(session: &Session, source: Source, content: Read_) {
    let content = match content {
        Read_::Bytes(bytes) => text_or_digest(bytes),
        Read_::File(file, size) if size <= TEXT_BYTES_MAX => {
            let mut bytes = Vec::new();
            match read_to(&file, &mut bytes, TEXT_BYTES_MAX) {
                Ok(()) => text_or_digest(bytes),
                Err(_) => return,
            }
        }
        Read_::File(file, _) => match digest(&file) {
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
    let mut bytes = Vec::new();
    read_to(file, &mut bytes, max)?;
    Ok(Content {
        bytes: bytes.into(),
        digest,
    })
}

fn read_to(file: &File, bytes: &mut Vec<u8>, max: u64) -> std::io::Result<()> {
    AtStart { file, at: 0 }
        .take(max)
        .read_to_end(bytes)
        .map(drop)
}

/// Digest of a file's whole content, whatever its position.
pub(crate) fn digest(file: &File) -> std::io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut reader = AtStart { file, at: 0 };
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(Digest(hash.finalize().into())),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// Reads from the beginning without moving the file's position, which handles share.
struct AtStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for AtStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
