//! The socket between the monitor and its children: one JSON message a packet, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

use crate::SandboxError;
use crate::doctor::{Check, CheckName};
use crate::identity::Identity;

/// What the monitor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Enter the outer namespaces as this one, with a FUSE file system if there are `trees`, and
    /// begin with what no plan says; a plan follows.
    Enter { identity: Identity, trees: bool },
    /// Build the first phase of the plan, which is in the memfd that comes along.
    Prepare,
    /// Try each ability of the host and report.
    Probe(Identity),
    /// The id maps of N0 are written.
    Mapped,
    /// Finish the view and start the agent on the first three descriptors that come along; the
    /// fourth is the end of a socket on which [`Request::Socket`] is asked.
    Start,
    /// Make a TCP socket inside, of IPv6 or of IPv4.
    Socket { v6: bool },
    /// Send this signal to the agent's process group.
    Signal(i32),
}

/// What the children say.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The user namespace of this process waits for its id maps.
    NeedMaps,
    /// First phase done; the descriptors come along in this order: FUSE (if any), TCP, UDP.
    Ready {
        fuse: bool,
        tcp: usize,
        udp: usize,
        notes: Vec<String>,
    },
    /// The socket that was asked for comes along; none when it could not be made.
    Socket,
    /// The agent's program runs; its pid as the host sees it comes from the socket credentials.
    Started,
    /// The agent's main process was stopped, by its terminal or by itself.
    Stopped,
    /// The agent's main process ended.
    Exited(ExitKind),
    /// What `Probe` found.
    Probed(Vec<Check>),
    /// It cannot be done; this process ends now.
    Failed(Failure),
}

/// How the agent's main process ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ExitKind {
    Code(i32),
    Signal(i32),
}

/// An error on its way to the monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Step {
        step: String,
        message: String,
    },
    /// A host ability is missing; the monitor adds the remedy.
    Host {
        check: CheckName,
        found: String,
    },
    NotFound {
        program: String,
    },
    NotExecutable {
        program: String,
        message: String,
    },
}

impl From<Failure> for SandboxError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Step { step, message } => Self::Step { step, message },
            Failure::Host { check, found } => Self::Host {
                check: check.missing(found),
            },
            Failure::NotFound { program } => Self::NotFound { program },
            Failure::NotExecutable { program, message } => Self::NotExecutable { program, message },
        }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Plan { message } => Self::Step {
                step: "use the plan".to_owned(),
                message,
            },
            SandboxError::Host { check } => Self::Host {
                check: check.name,
                found: check.found,
            },
            SandboxError::Step { step, message } => Self::Step { step, message },
            SandboxError::NotFound { program } => Self::NotFound { program },
            SandboxError::NotExecutable { program, message } => {
                Self::NotExecutable { program, message }
            }
        }
    }
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

impl Control {
    /// The monitor's end and the child's.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(ours), theirs))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(crate) fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        retry(|| {
            let parts = [IoSlice::new(&bytes)];
            rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }

    /// The next message, or `None` when the other end is gone.
    pub(crate) fn receive<M: for<'de> Deserialize<'de>>(
        &self,
    ) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut receive = || {
            retry(|| {
                let mut parts = [IoSliceMut::new(&mut bytes)];
                let flags = RecvFlags::CMSG_CLOEXEC;
                rustix::net::recvmsg(&self.0, &mut parts, &mut ancillary, flags)
            })
        };
        let got = match receive() {
            // The other end did not read everything; what it said before it went is still to come.
            Err(rustix::io::Errno::CONNRESET) => receive(),
            other => other,
        };
        let got = match got {
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => other?,
        };
        if got.bytes == 0 {
            return Ok(None);
        }
        if got
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(io::Error::other("a control message was cut off"));
        }
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let message = serde_json::from_slice(bytes.get(..got.bytes).unwrap_or_default())?;
        Ok(Some((message, fds)))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Fallback listeners per port are the largest set that is ever passed.
const FDS_MAX: usize = 128;

const MESSAGE_BYTES_MAX: usize = 64 * 1024;

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}
