//! The threads that carry bytes: one per direction and stream, so that a full pipe on one side
//! never keeps another from flowing.

use crate::filter::Filter;
use crate::input::Lines;
use crate::pty::asks_for_password;
use crate::terminal::{Shared, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, ioctl_fionread, read, write};
use std::sync::Arc;
use std::time::Duration;

const CHUNK_BYTES: usize = 32 << 10;
/// How much typed or piped input may wait for the agent.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// How long to wait for more output once the agent has ended, while something still holds its
/// streams open.
const GRACE: Duration = Duration::from_millis(80);
/// How often to look whether a closed pseudo-terminal was opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(40);
/// How often a job in the background looks whether it is in the foreground again.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(200);

/// Where the agent's input goes.
pub(crate) enum Sink {
    Pty(Arc<OwnedFd>),
    /// The write end of the agent's stdin pipe, non-blocking.
    Pipe(OwnedFd),
}

pub(crate) struct Input {
    pub(crate) source: OwnedFd,
    pub(crate) sink: Sink,
    /// `source` is the principal's keyboard.
    pub(crate) keyboard: bool,
    /// Set when `source` is a regular file: the read end of the agent's stdin pipe, to know what
    /// the agent did not read.
    pub(crate) unread: Option<OwnedFd>,
    pub(crate) shared: Arc<Shared>,
}

impl Input {
    /// Carries input until either side has ended or the session has.
    pub(crate) fn run(self) {
        let mut lines = Lines::new();
        let mut waiting: Vec<u8> = Vec::new();
        let mut source_open = true;
        let mut chunk = vec![0; CHUNK_BYTES];
        while !self.shared.is_over() && (source_open || !waiting.is_empty()) {
            let ours = !self.keyboard || self.shared.claim_keyboard();
            let listen = source_open && ours && waiting.len() < WAITING_BYTES_MAX;
            let ready = self.wait(listen, !waiting.is_empty(), ours);
            if ready.over {
                break;
            }
            if ready.source {
                match read(&self.source, &mut chunk) {
                    Ok(0) | Err(Errno::IO) => {
                        source_open = false;
                        if self.keyboard && self.is_pty() {
                            self.shared.signal(Signal::HangUp);
                        }
                    }
                    Ok(n) => {
                        let bytes = chunk.get(..n).unwrap_or_default();
                        if self.keyboard {
                            self.listen(&mut lines, bytes);
                        }
                        waiting.extend_from_slice(bytes);
                    }
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(_) => source_open = false,
                }
            }
            if ready.sink && !self.flush(&mut waiting) {
                break;
            }
        }
        self.give_back(waiting.len());
    }

    /// Hands entered lines on before the agent can see them.
    fn listen(&self, lines: &mut Lines, bytes: &[u8]) {
        if let Sink::Pty(master) = &self.sink
            && asks_for_password(master)
        {
            lines.clear();
            return;
        }
        lines.push(bytes, &mut |task| self.shared.task(task));
    }

    /// Returns false when the agent has closed its end.
    fn flush(&self, waiting: &mut Vec<u8>) -> bool {
        if waiting.is_empty() {
            // Ready without anything to write: the reader is gone.
            return self.is_pty();
        }
        match write(self.sink(), waiting) {
            Ok(n) => {
                waiting.drain(..n);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    fn wait(&self, listen: bool, pending: bool, ours: bool) -> Ready {
        let none = PollFlags::empty();
        let sink_events = if pending { PollFlags::OUT } else { none };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.shared.over_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.sink(), sink_events),
        ];
        // A pseudo-terminal whose agent has not yet opened it hangs up: not worth waking for.
        if self.is_pty() && !pending {
            fds.truncate(1);
        }
        let sink_at = fds.len() - 1;
        if listen {
            fds.push(PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN));
        }
        let pause = (!ours).then_some(BACKGROUND_PAUSE);
        let timeout = pause.and_then(|pause| Timespec::try_from(pause).ok());
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let at = |i: usize| fds.get(i).is_some_and(|fd| !fd.revents().is_empty());
        Ready {
            over: at(0),
            sink: sink_at > 0 && at(sink_at),
            source: listen && at(sink_at + 1),
        }
    }

    fn sink(&self) -> BorrowedFd<'_> {
        match &self.sink {
            Sink::Pty(master) => master.as_fd(),
            Sink::Pipe(pipe) => pipe.as_fd(),
        }
    }

    fn is_pty(&self) -> bool {
        matches!(self.sink, Sink::Pty(_))
    }

    /// Moves a file's offset back to where the agent stopped reading, as if it had read the file
    /// itself: the rest of a shell loop's input is still there.
    fn give_back(self, waiting: usize) {
        let Some(unread) = self.unread else { return };
        drop(self.sink);
        self.shared.wait_until_over(None);
        let left = ioctl_fionread(&unread)
            .unwrap_or(0)
            .saturating_add(waiting as u64);
        if let Ok(left) = i64::try_from(left)
            && left > 0
        {
            let _ = seek(&self.source, SeekFrom::Current(-left));
        }
    }
}

#[derive(Default)]
struct Ready {
    over: bool,
    sink: bool,
    source: bool,
}

pub(crate) struct Output {
    /// The master of the pseudo-terminal, or the read end of a pipe.
    pub(crate) source: Arc<OwnedFd>,
    pub(crate) target: OwnedFd,
    /// The target is a terminal.
    pub(crate) filtered: bool,
    pub(crate) shared: Arc<Shared>,
}

impl Output {
    /// Carries output until the agent has closed its end, or has ended and nothing more comes.
    pub(crate) fn run(self) {
        let Self {
            source,
            target,
            filtered,
            shared,
        } = self;
        let mut filter = filtered.then(Filter::new);
        let mut target = Some(target);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        while let Some(n) = next(&source, &shared, &mut chunk) {
            let bytes = chunk.get(..n).unwrap_or_default();
            let bytes = match &mut filter {
                Some(filter) => {
                    out.clear();
                    filter.feed(bytes, &mut out);
                    &out
                }
                None => bytes,
            };
            if let Some(fd) = &target
                && !write_all(fd, bytes)
            {
                target = None;
                if !filtered {
                    // The agent's next write fails, as it would have without Kairos.
                    return;
                }
            }
        }
        if let (Some(mut filter), Some(fd)) = (filter, target) {
            out.clear();
            filter.finish(&mut out);
            write_all(&fd, &out);
        }
    }
}

/// The next bytes, or nothing when there will be none.
fn next(source: &OwnedFd, shared: &Shared, chunk: &mut [u8]) -> Option<usize> {
    loop {
        match read(source, &mut *chunk) {
            Ok(0) => return None,
            // Nobody has the pseudo-terminal open; the agent may open it again as /dev/tty.
            Err(Errno::IO) if shared.is_over() => return None,
            Err(Errno::IO) => shared.wait_until_over(Some(REOPEN_PAUSE)),
            Ok(n) => return Some(n),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let over = shared.is_over();
                let mut fds = vec![PollFd::new(source, PollFlags::IN)];
                if !over {
                    fds.push(PollFd::from_borrowed_fd(shared.over_fd(), PollFlags::IN));
                }
                let timeout = over.then(|| Timespec::try_from(GRACE).ok()).flatten();
                match poll(&mut fds, timeout.as_ref()) {
                    Ok(0) => return None,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return None,
                }
            }
            Err(_) => return None,
        }
    }
}

/// Writes to a descriptor that others share, so it may be blocking or not.
fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(fd, PollFlags::OUT)];
                if poll(&mut fds, None).is_err_and(|error| error != Errno::INTR) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}
