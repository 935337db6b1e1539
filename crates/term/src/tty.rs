//! The principal's terminal: raw mode and back, its size, and whether it is ours to use.

use crate::sys::Rescue;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::process::getpgrp;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, Winsize, tcdrain, tcflush, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr,
};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Tty {
    fd: OwnedFd,
    original: Termios,
    rescue: Rescue,
    mode: Mutex<Mode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Original,
    Raw,
    /// Original, and to stay so until it is released: Kairos is being stopped.
    Held,
}

impl Tty {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let original = tcgetattr(&fd)?;
        let rescue = Rescue::new(fd.as_raw_fd(), original.clone());
        Ok(Self {
            fd,
            original,
            rescue,
            mode: Mutex::new(Mode::Original),
        })
    }

    pub(crate) fn original(&self) -> &Termios {
        &self.original
    }

    pub(crate) fn size(&self) -> io::Result<Winsize> {
        Ok(tcgetwinsize(&self.fd)?)
    }

    /// Whether reading from it is ours; a background job would be stopped. A terminal that is not
    /// the controlling one has no job control, so it is.
    pub(crate) fn is_foreground(&self) -> bool {
        tcgetpgrp(&self.fd).map_or(true, |group| group == getpgrp())
    }

    /// Every byte as it is typed and as it is written. Does nothing in the background.
    pub(crate) fn enter_raw(&self) -> io::Result<()> {
        let mut mode = self.mode();
        if *mode == Mode::Held || !self.is_foreground() {
            return Ok(());
        }
        let mut termios = self.original.clone();
        termios.make_raw();
        self.rescue.arm();
        tcsetattr(&self.fd, OptionalActions::Now, &termios)?;
        *mode = Mode::Raw;
        Ok(())
    }

    /// Puts the original settings back.
    pub(crate) fn leave_raw(&self) {
        self.restore(Mode::Original);
    }

    /// Puts the original settings back, and keeps them until `release`.
    pub(crate) fn hold(&self) {
        self.restore(Mode::Held);
    }

    pub(crate) fn release(&self) {
        *self.mode() = Mode::Original;
    }

    pub(crate) fn is_raw(&self) -> bool {
        *self.mode() == Mode::Raw
    }

    fn restore(&self, next: Mode) {
        let mut mode = self.mode();
        if *mode == Mode::Raw {
            if self.is_foreground() {
                let _ = tcsetattr(&self.fd, OptionalActions::Now, &self.original);
            }
            self.rescue.disarm();
        }
        *mode = next;
    }

    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was typed and not read: answers to the agent's last queries must not end up in
    /// the principal's shell or be taken for an answer to a question of ours.
    pub(crate) fn forget_input(&self) {
        if self.is_foreground() {
            let _ = tcdrain(&self.fd);
            let _ = tcflush(&self.fd, QueueSelector::IFlush);
        }
    }
}

impl AsFd for Tty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.leave_raw();
    }
}
