//! The monitor's side: start the boundary, get its descriptors, start the agent, wait for it.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;

use rustix::fs::{MemfdFlags, SeekFrom};

use crate::SandboxError;
use crate::child::HIDDEN_ARGUMENT;
use crate::control::{Control, ExitKind, Reply, Request};
use crate::doctor::CheckName;
use crate::error::During;
use crate::identity::Identity;
use crate::plan::Plan;

/// Builds the namespaces of one agent. Nothing of the agent runs yet.
pub fn prepare(plan: &Plan) -> Result<Prepared, SandboxError> {
    prepare_with(plan, &Launcher::default())
}

/// As [`prepare`], with another program for the children.
pub fn prepare_with(plan: &Plan, launcher: &Launcher) -> Result<Prepared, SandboxError> {
    plan.check()?;
    Boundary::enter(launcher)?.prepare(plan)
}

/// Starts the boundary's own process ahead of its plan: it enters its namespaces while the plan is
/// made. Dropped without one, it ends.
pub fn ahead() -> Ahead {
    let entering = std::thread::Builder::new()
        .name("sandbox-ahead".to_string())
        .spawn(|| Boundary::enter(&Launcher::default()));
    Ahead(entering.ok())
}

/// A boundary that still lacks its plan.
#[derive(Debug)]
pub struct Ahead(Option<std::thread::JoinHandle<Result<Boundary, SandboxError>>>);

impl Ahead {
    /// As [`prepare`].
    pub fn prepare(mut self, plan: &Plan) -> Result<Prepared, SandboxError> {
        plan.check()?;
        let entered = self.0.take().and_then(|entering| entering.join().ok());
        let boundary = entered.unwrap_or_else(|| Boundary::enter(&Launcher::default()))?;
        boundary.prepare(plan)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // With the boundary its process ends.
        let _ = self.0.take().map(std::thread::JoinHandle::join);
    }
}

impl Boundary {
    fn enter(launcher: &Launcher) -> Result<Self, SandboxError> {
        let boundary = Self::launch(launcher)?;
        boundary
            .control
            .send(&Request::Enter(boundary.identity), &[])
            .during("start the outer process")?;
        boundary.serve_maps()?;
        Ok(boundary)
    }

    fn prepare(self, plan: &Plan) -> Result<Prepared, SandboxError> {
        self.control
            .send(&Request::Prepare, &[write_plan(plan)?.as_fd()])
            .during("hand over the plan")?;
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
    /// Builds the view, drops what is not the agent's and runs its program.
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
            .control
            .send(&Request::Start, &fds)
            .during("start the agent")?;
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
        self.control
            .send(&Request::Mapped, &[])
            .during("enter the user namespace")
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
    boundary
        .control
        .send(&Request::Probe(boundary.identity), &[])
        .during("ask for a probe of the host")?;
    boundary.serve_maps()?;
    match boundary.receive("probe the host")? {
        (Reply::Probed(checks), _) => Ok(checks),
        (other, _) => Err(unexpected("probe the host", &other)),
    }
}

fn write_plan(plan: &Plan) -> Result<OwnedFd, SandboxError> {
    let step = "write the plan down";
    let memory = rustix::fs::memfd_create("kairos-plan", MemfdFlags::CLOEXEC).during(step)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(&serde_json::to_vec(plan).during(step)?)
        .during(step)?;
    rustix::fs::seek(&file, SeekFrom::Start(0)).during(step)?;
    Ok(file.into())
}

fn only_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn unexpected(step: &str, reply: &Reply) -> SandboxError {
    SandboxError::step(step, format!("unexpected answer {reply:?}"))
}
