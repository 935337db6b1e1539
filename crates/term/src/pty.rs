//! The agent's pseudo-terminal.

use crate::tty::Tty;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, tcgetattr, tcsetattr, tcsetwinsize,
};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

pub(crate) struct Pty {
    /// Kairos's side, non-blocking.
    pub(crate) master: OwnedFd,
    /// The agent's side.
    pub(crate) slave: OwnedFd,
    pub(crate) path: PathBuf,
}

impl Pty {
    /// One that looks like `tty`: its settings and size. Unless `tty` will be raw, it goes on
    /// turning line feeds into new lines itself, so the pseudo-terminal must not.
    pub(crate) fn like(tty: &Tty, raw: bool) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let path = PathBuf::from(OsString::from_vec(
            ptsname(&master, Vec::new())?.into_bytes(),
        ));
        let mut termios = tty.original().clone();
        if !raw {
            termios.output_modes.remove(OutputModes::OPOST);
        }
        tcsetattr(&slave, OptionalActions::Now, &termios)?;
        let pty = Self {
            master,
            slave,
            path,
        };
        resize(&pty.master, tty)?;
        fcntl_setfl(&pty.master, fcntl_getfl(&pty.master)? | OFlags::NONBLOCK)?;
        Ok(pty)
    }
}

/// Gives the agent's side the size of `tty`; its foreground group learns of a change.
pub(crate) fn resize(master: &OwnedFd, tty: &Tty) -> io::Result<()> {
    Ok(tcsetwinsize(master, tty.size()?)?)
}

/// Whether the agent reads a line without echo: a password, which is not a task.
pub(crate) fn asks_for_password(master: &OwnedFd) -> bool {
    tcgetattr(master).is_ok_and(|termios| {
        termios.local_modes.contains(LocalModes::ICANON)
            && !termios.local_modes.contains(LocalModes::ECHO)
    })
}
