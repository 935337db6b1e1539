//! Searching a large body while the rest of it still comes, so that the decision waits for its end only.
//! It says nothing before the last byte: what the session came to know meanwhile has it searched again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use kernel::Scanner;
use tokio::sync::Semaphore;

use crate::spool::Written;
use crate::unpack::{self, ATTEMPTS_MAX, GONE, Part};

/// Bytes that are searched together.
const PART_BYTES: u64 = 32 * Scanner::STEP;

/// The search of a body from its start, as far as it has come.
pub(crate) struct Ahead {
    scanner: Scanner,
    /// Bytes of the body that are searched, or about to be.
    bytes: u64,
    parts: usize,
    /// As many parts at a time as there are processors.
    room: Arc<Semaphore>,
    /// Packed parts found so far; with too many nothing more is searched ahead.
    packs: Arc<AtomicUsize>,
    tell: Sender<Result<Part, String>>,
    told: Receiver<Result<Part, String>>,
}

impl Ahead {
    /// Starts with what the session knows now.
    pub(crate) fn new(scanner: Scanner) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (tell, told) = channel();
        Self {
            scanner,
            bytes: 0,
            parts: 0,
            room: Arc::new(Semaphore::new(processors)),
            packs: Arc::default(),
            tell,
            told,
        }
    }

    /// Searches what is there by now and was not yet, as far as there is room beside what is still
    /// being searched.
    pub(crate) fn reach(&mut self, written: Written) {
        let written = Arc::new(written);
        while self.bytes + PART_BYTES + Scanner::OVERLAP <= written.bytes()
            && self.packs.load(Ordering::Relaxed) < ATTEMPTS_MAX as usize
            && let Ok(seat) = Arc::clone(&self.room).try_acquire_owned()
        {
            let from = self.bytes;
            self.bytes += PART_BYTES;
            self.parts += 1;
            let (scanner, packs) = (self.scanner.clone(), Arc::clone(&self.packs));
            let (tell, written) = (self.tell.clone(), Arc::clone(&written));
            tokio::task::spawn_blocking(move || {
                let part = unpack::part_of(&scanner, written.reader_at(from), from, PART_BYTES);
                if let Ok((_, found)) = &part {
                    packs.fetch_add(found.len(), Ordering::Relaxed);
                }
                // Nobody listens when the request ended before its body did.
                let _ = tell.send(part);
                drop(seat);
            });
        }
    }

    /// What it looks for.
    pub(crate) fn scanner(&self) -> &Scanner {
        &self.scanner
    }

    /// Bytes from the start of the body that need no other search.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was found in them, in any order; waits for it.
    pub(crate) fn parts(self) -> Vec<Result<Part, String>> {
        let Self {
            parts, tell, told, ..
        } = self;
        // Only who still searches may say more.
        drop(tell);
        (0..parts)
            .map(|_| told.recv().unwrap_or_else(|_| Err(GONE.into())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use kernel::sensitive::Sensitive;
    use kernel::{EventId, Level, Source};
    use store::Blobs;

    use super::*;
    use crate::spool::Spooler;
    use crate::unpack::Budget;

    const SECRET: &[u8] = b"hunter2-in-a-box";

    /// Whether a secret at a place is found when what is there so far was searched ahead, by a session that
    /// came to know it only afterwards or knew it before.
    fn found(at: usize, known_before: bool) -> bool {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _inside = runtime.enter();
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open_dir(dir.path()).unwrap();
        let mut sensitive = Sensitive::default();
        let mut learn = |text: &str| {
            sensitive.add_text(text, Level::Critical, &Source::Task, EventId(1));
            sensitive.scanner()
        };
        let secret = std::str::from_utf8(SECRET).unwrap();
        let before = learn(if known_before {
            secret
        } else {
            "another-4711-word"
        });

        let mut body = vec![0; PART_BYTES as usize * 2 + 400_000];
        body[at..at + SECRET.len()].copy_from_slice(SECRET);
        let mut spooler = Spooler::new(&blobs, b"HEAD\n\n".to_vec());
        let mut ahead = Ahead::new(before);
        for piece in body.chunks(1 << 20) {
            spooler = spooler.add(piece).unwrap();
            if let Some(written) = spooler.written() {
                ahead.reach(written);
            }
        }
        assert!(ahead.bytes() >= PART_BYTES, "{}", ahead.bytes());
        let spool = spooler.finish().unwrap();
        let source = |at: u64| -> io::Result<Box<dyn Read + Send>> { Ok(spool.body_reader_at(at)) };
        let now = learn(secret);
        let mut budget = Budget::default();
        let bytes = spool.body_bytes();
        let found = unpack::scan_sized(&now, &source, bytes, Some(ahead), &mut budget).unwrap();
        found.tokens().next().is_some()
    }

    #[test]
    fn nothing_is_missed_where_parts_meet_or_was_not_known_yet() {
        let part = PART_BYTES as usize;
        for at in [0, part - 5, part, 2 * part - 5, 2 * part + 399_000] {
            assert!(found(at, true), "{at}");
        }
        assert!(found(100, false));
        assert!(found(part - 5, false));
    }
}
