//! The monitor's side: start the boundary, get its descriptors, start the agent, wait for it.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;

use crate::SandboxError;
use crate::child::HIDDEN_ARGUMENT;
use crate::control::{Control, ExitKind, Reply, Request};
use crate::doctor::CheckName;
use crate::error::During;
use crate::identity::Identity;
use crate::plan::{self, Plan};

/// Builds the namespaces of one agent. Nothing of the agent runs yet.
pub fn prepare(plan: &Plan) -> Result<Prepared, SandboxError> {
    prepare_with(plan, &Launcher::default())
}

/// As [`prepare`], with another program for the children.
pub fn prepare_with(plan: &Plan, launcher: &Launcher) -> Result<Prepared, SandboxError> {
    plan.check()?;
    Boundary::enter(launcher, !plan.trees.is_empty())?
        .hand_over(plan)?
        .ready()
}

/// Starts the boundary's own process ahead of its plan, which has trees: it enters its namespaces
/// while the plan is made. Dropped without one, it ends.
pub fn ahead() -> Ahead {
    let entering = std::thread::Builder::new()
        .name("sandbox-ahead".to_string())
        .spawn(|| Boundary::enter(&Launcher::default(), true));
    Ahead(entering.ok())
}

/// A boundary that still lacks its plan.
#[derive(Debug)]
pub struct Ahead(Option<std::thread::JoinHandle<Result<Boundary, SandboxError>>>);

impl Ahead {
    /// Gives it its plan, and does not wait for what becomes of it.
    pub fn hand_over(mut self, plan: &Plan) -> Result<Preparing, SandboxError> {
        plan.check()?;
        let entered = self.0.take().and_then(|entering| entering.join().ok());
        let boundary = entered.unwrap_or_else(|| Boundary::enter(&Launcher::default(), true))?;
        boundary.hand_over(plan)
    }
}

/// A boundary that has its plan. Dropping it ends it.
#[derive(Debug)]
pub struct Preparing(Boundary);

impl Preparing {
    /// Waits until its descriptors are there.
    pub fn ready(self) -> Result<Prepared, SandboxError> {
        self.0.ready()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // With the boundary its process ends.
        let _ = self.0.take().map(std::thread::JoinHandle::join);
    }
}

impl Boundary {
    fn enter(launcher: &Launcher, trees: bool) -> Result<Self, SandboxError> {
        let boundary = Self::launch(launcher)?;
        let identity = boundary.identity;
        boundary.tell(
            &Request::Enter { identity, trees },
            &[],
            "start the outer process",
        )?;
        boundary.serve_maps()?;
        Ok(boundary)
    }

    fn hand_over(self, plan: &Plan) -> Result<Preparing, SandboxError> {
        let step = "hand over the plan";
        let written = plan::write(plan).during(step)?;
        self.tell(&Request::Prepare, &[written.as_fd()], step)?;
        Ok(Preparing(self))
    }

    fn ready(self) -> Result<Prepared, SandboxError> {
        match self.receive("prepare the boundary")? {
            (
                Reply::Ready {
                    fuse,
                    tcp,
                    udp,
                    notes,
                },
                fds,
            ) => {
                let mut fds = fds.into_iter();
                let fuse = if fuse { fds.next() } else { None };
                let tcp: Vec<_> = fds.by_ref().take(tcp).collect();
                let udp: Vec<_> = fds.by_ref().take(udp).collect();
                let (door, theirs) = Control::pair().during("open a socket for services inside")?;
                Ok(Prepared {
                    door: Some(Door(Mutex::new(door))),
                    theirs,
                    fuse,
                    tcp,
                    udp,
                    notes,
                    boundary: self,
                })
            }
            (other, _) => Err(unexpected("prepare the boundary", &other)),
        }
    }
}

/// Which program the children are: one whose `main` begins with
/// [`crate::child_main_if_requested`].
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
}

impl Launcher {
    /// Another program than this one.
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self {
            program: path.into(),
        }
    }
}

impl Default for Launcher {
    fn default() -> Self {
        Self {
            program: "/proc/self/exe".into(),
        }
    }
}

/// A boundary without an agent. Dropping it ends it.
#[derive(Debug)]
pub struct Prepared {
    /// `/dev/fuse`, mounted and waiting to be served, if the plan has trees. Serve it before
    /// [`Self::start`], which looks the trees up.
    pub fuse: Option<OwnedFd>,
    /// Non-blocking listeners that get every TCP connection of the agent; `getsockname` on an
    /// accepted socket is the destination that the agent meant.
    pub tcp: Vec<OwnedFd>,
    /// Non-blocking sockets, IPv4 then IPv6, that get every datagram to port 53. The packet
    /// information of each names the address the answer must come from. A datagram to any other
    /// port is answered by the kernel: connection refused.
    pub udp: Vec<OwnedFd>,
    /// What is weaker than usual on this host, in words for the person who started the agent.
    pub notes: Vec<String>,
    /// The way in to services that the agent starts.
    pub door: Option<Door>,
    theirs: OwnedFd,
    boundary: Boundary,
}

/// The way in: sockets of the agent's network, made on demand while the agent runs.
#[derive(Debug)]
pub struct Door(Mutex<Control>);

impl Door {
    /// A TCP socket, non-blocking and not connected; `127.0.0.1` (or `::1`) is the agent's own.
    pub fn socket(&self, v6: bool) -> Result<OwnedFd, SandboxError> {
        let step = "reach into the boundary";
        let door = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        door.send(&Request::Socket { v6 }, &[]).during(step)?;
        match door.receive().during(step)? {
            Some((Reply::Socket, fds)) => fds
                .into_iter()
                .next()
                .ok_or_else(|| SandboxError::step(step, "no socket can be made inside")),
            Some((other, _)) => Err(unexpected(step, &other)),
            None => Err(SandboxError::step(step, "the agent has ended")),
        }
    }
}

/// The agent's standard input, output and error: one pty slave three times, or pipes. If one is
/// a terminal, it becomes the agent's controlling terminal.
#[derive(Debug)]
pub struct Stdio {
    /// Standard input.
    pub stdin: OwnedFd,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

impl Prepared {
    /// Finishes the view, drops what is not the agent's and runs its program.
    pub fn start(self, stdio: Stdio) -> Result<Agent, SandboxError> {
        self.boundary
            .identity
            .give(&[&stdio.stdin, &stdio.stdout, &stdio.stderr])?;
        let fds = [
            stdio.stdin.as_fd(),
            stdio.stdout.as_fd(),
            stdio.stderr.as_fd(),
            self.theirs.as_fd(),
        ];
        self.boundary
            .tell(&Request::Start, &fds, "start the agent")?;
        // Only init has it now, so asking ends when init does.
        drop(self.theirs);
        match self.boundary.receive("start the agent")? {
            (Reply::Started, _) => Ok(Agent {
                boundary: self.boundary,
                exit: Mutex::new(None),
            }),
            (other, _) => Err(unexpected("start the agent", &other)),
        }
    }
}

/// A running agent. Dropping it ends it and everything it started.
#[derive(Debug)]
pub struct Agent {
    boundary: Boundary,
    exit: Mutex<Option<Exit>>,
}

/// How the agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Its main process returned this status.
    Code(i32),
    /// A signal ended its main process.
    Signal(i32),
    /// The boundary was ended from outside, by [`Agent::kill`] or by the system.
    Killed,
}

impl Exit {
    /// As a shell reports it.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::Killed => 128 + 9,
        }
    }
}

impl Agent {
    /// Waits until the agent's main process has ended and nothing that it started is left.
    pub fn wait(&self) -> Result<Exit, SandboxError> {
        self.wait_with(|| {})
    }

    /// As [`Agent::wait`]; calls `stopped` each time the agent's main process was stopped, by Ctrl-Z
    /// or by itself. Whoever wants it to go on sends it `SIGCONT`.
    pub fn wait_with(&self, mut stopped: impl FnMut()) -> Result<Exit, SandboxError> {
        let mut exit = self
            .exit
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(exit) = *exit {
            return Ok(exit);
        }
        let ended = match self.next_reply(&mut stopped)? {
            Some((Reply::Exited(ExitKind::Code(code)), _)) => Exit::Code(code),
            Some((Reply::Exited(ExitKind::Signal(signal)), _)) => Exit::Signal(signal),
            Some((Reply::Failed(failure), _)) => return Err(failure.into()),
            Some((other, _)) => return Err(unexpected("wait for the agent", &other)),
            None => Exit::Killed,
        };
        self.boundary.reap();
        *exit = Some(ended);
        Ok(ended)
    }

    fn next_reply(
        &self,
        stopped: &mut impl FnMut(),
    ) -> Result<Option<(Reply, Vec<OwnedFd>)>, SandboxError> {
        loop {
            let reply = self.boundary.control.receive();
            match reply.during("wait for the agent")? {
                Some((Reply::Stopped, _)) => stopped(),
                other => return Ok(other),
            }
        }
    }

    /// Sends a signal to the agent's main process group, as a terminal does.
    pub fn signal(&self, signal: i32) -> Result<(), SandboxError> {
        self.boundary
            .control
            .send(&Request::Signal(signal), &[])
            .during("signal the agent")
    }

    /// Ends the agent and everything it started, at once.
    pub fn kill(&self) {
        self.boundary.hang_up();
    }

    /// The agent's main process as this process's pid namespace numbers it, while it lives.
    pub fn pid(&self) -> Option<u32> {
        let init = only_child(self.boundary.outer_pid)?;
        only_child(init)
    }
}

/// The outer process and the socket to it.
#[derive(Debug)]
struct Boundary {
    control: Control,
    identity: Identity,
    outer_pid: u32,
    outer: Mutex<Child>,
}

impl Boundary {
    fn launch(launcher: &Launcher) -> Result<Self, SandboxError> {
        let identity = Identity::current()?;
        let (control, theirs) = Control::pair().during("open the control socket")?;
        let child = Command::new(&launcher.program)
            .arg(OsString::from(HIDDEN_ARGUMENT))
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(std::process::Stdio::null())
            .spawn()
            .during("start the outer process")?;
        Ok(Self {
            control,
            identity,
            outer_pid: child.id(),
            outer: Mutex::new(child),
        })
    }

    /// Writes the id maps of N0 once its process asks for them.
    fn serve_maps(&self) -> Result<(), SandboxError> {
        match self.receive("enter the user namespace")? {
            (Reply::NeedMaps, _) => {}
            (other, _) => return Err(unexpected("enter the user namespace", &other)),
        }
        let proc = PathBuf::from(format!("/proc/{}", self.outer_pid));
        let (uids, gids) = self.identity.outer_maps();
        let host = |found: std::io::Error| SandboxError::Host {
            check: CheckName::UserNamespaces.missing(format!("the id maps are refused: {found}")),
        };
        if let Identity::Same { .. } = self.identity {
            std::fs::write(proc.join("setgroups"), "deny").map_err(host)?;
        }
        std::fs::write(proc.join("uid_map"), uids).map_err(host)?;
        std::fs::write(proc.join("gid_map"), gids).map_err(host)?;
        self.tell(&Request::Mapped, &[], "enter the user namespace")
    }

    /// Whoever does not listen any more has ended, and said why if it could.
    fn tell(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        step: &str,
    ) -> Result<(), SandboxError> {
        match self.control.send(request, fds) {
            Ok(()) => Ok(()),
            Err(error) => match self.receive(step) {
                Err(why) => Err(why),
                Ok(_) => Err(SandboxError::step(step, error)),
            },
        }
    }

    fn receive(&self, step: &str) -> Result<(Reply, Vec<OwnedFd>), SandboxError> {
        match self.control.receive().during(step)? {
            Some((Reply::Failed(failure), _)) => {
                self.reap();
                Err(failure.into())
            }
            Some(reply) => Ok(reply),
            None => {
                self.reap();
                Err(SandboxError::step(
                    step,
                    "the boundary's own process ended unexpectedly",
                ))
            }
        }
    }

    /// Init sees the end of the socket and ends everything.
    fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
    }

    /// Waits for the outer process, which waits for init, which the kernel ends last.
    fn reap(&self) {
        let mut outer = self
            .outer
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = outer.wait();
    }
}

impl Drop for Boundary {
    fn drop(&mut self) {
        self.hang_up();
        self.reap();
    }
}

/// The probe of [`crate::doctor`]: what the children find when they try.
pub(crate) fn probe(launcher: &Launcher) -> Result<Vec<crate::doctor::Check>, SandboxError> {
    let boundary = Boundary::launch(launcher)?;
    let request = Request::Probe(boundary.identity);
    boundary.tell(&request, &[], "ask for a probe of the host")?;
    boundary.serve_maps()?;
    match boundary.receive("probe the host")? {
        (Reply::Probed(checks), _) => Ok(checks),
        (other, _) => Err(unexpected("probe the host", &other)),
    }
}

fn only_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn unexpected(step: &str, reply: &Reply) -> SandboxError {
    SandboxError::step(step, format!("unexpected answer {reply:?}"))
}
