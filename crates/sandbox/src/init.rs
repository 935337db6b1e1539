//! Process 1 of the agent's pid namespace: builds the network and the view, starts the agent,
//! collects orphans, and takes everything with it when it ends.
//!
//! Each step is taken as soon as what it needs is known, while the monitor is busy with its own
//! part: the network before the plan is there, most of the view before the trees are served.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus};

use crate::control::{Control, ExitKind, Failure, Reply, Request};
use crate::error::During;
use crate::identity::Identity;
use crate::plan::{self, Plan};
use crate::sys::{self, Fork};
use crate::view::{self, FuseMount};
use crate::{SandboxError, agent, child, network};

/// Never returns: when the agent or the monitor is gone, so is this process, and the kernel ends
/// everything else in the namespace.
pub(crate) fn run(control: &Control, identity: Identity, fuse: Option<FuseMount>) -> ! {
    let code = match confine(control, identity, fuse) {
        Ok(()) => 0,
        Err(error) => {
            let _ = control.send(&Reply::Failed(Failure::from(error)), &[]);
            125
        }
    };
    std::process::exit(code)
}

fn confine(
    control: &Control,
    identity: Identity,
    fuse: Option<FuseMount>,
) -> Result<(), SandboxError> {
    child::tie_to_parent()?;
    let umask = rustix::process::umask(Mode::empty());
    let proc_mount = view::mount_proc()?;
    let mut capture = network::set_up()?;
    allow_low_ports(identity);

    let plan = match control.receive().during("wait for the plan")? {
        Some((Request::Prepare, fds)) => plan::read(fds).during("read the plan")?,
        Some((other, _)) => {
            return Err(SandboxError::step(
                "wait for the plan",
                format!("unexpected {other:?}"),
            ));
        }
        None => return Ok(()),
    };
    let plan = &plan;
    capture.listen_on(&plan.host_ports)?;
    rustix::system::sethostname(plan.hostname.as_bytes()).during("set the host name")?;
    let fuse_mount = announce(control, capture, fuse)?;
    let view = view::begin(plan, identity, &proc_mount)?;

    let stdio = match control.receive().during("wait for the start")? {
        Some((Request::Start, fds)) => fds,
        Some((other, _)) => {
            return Err(SandboxError::step("start", format!("unexpected {other:?}")));
        }
        None => return Ok(()),
    };
    let [stdin, stdout, stderr, door]: [OwnedFd; 4] = stdio
        .try_into()
        .map_err(|_| SandboxError::step("start", "four descriptors are needed"))?;
    let stdio = [stdin, stdout, stderr];
    let terminal = stdio.iter().find(|fd| rustix::termios::isatty(fd));
    view.finish(plan, fuse_mount, terminal)?;
    let children = sys::child_events().during("watch for ended processes")?;
    lead_session(&stdio)?;
    let agent = start_agent(plan, identity, &proc_mount, stdio, umask)?;
    drop(proc_mount);
    control
        .send(&Reply::Started, &[])
        .during("tell that the agent runs")?;
    watch(control, Some(Control::from_fd(door)), &children, agent)
}

/// Hands the descriptors out and keeps none of them: were `/dev/fuse` open here too, a mount
/// operation would hang instead of failing once the monitor is gone.
fn announce(
    control: &Control,
    capture: network::Capture,
    fuse: Option<FuseMount>,
) -> Result<Option<OwnedFd>, SandboxError> {
    let (device, mount) = fuse.map(|fuse| (fuse.device, fuse.mount)).unzip();
    let fds: Vec<BorrowedFd<'_>> = device
        .iter()
        .chain(&capture.tcp)
        .chain(&capture.udp)
        .map(AsFd::as_fd)
        .collect();
    let ready = Reply::Ready {
        fuse: device.is_some(),
        tcp: capture.tcp.len(),
        udp: capture.udp.len(),
        notes: capture.notes,
    };
    control
        .send(&ready, &fds)
        .during("hand the descriptors to the monitor")?;
    Ok(mount)
}

/// A session of its own, with the agent's terminal where it has one. This process leads it as a
/// shell does: the agent's group below has a parent in its session, without which the kernel would
/// let no terminal stop it.
fn lead_session(stdio: &[OwnedFd; 3]) -> Result<(), SandboxError> {
    rustix::process::setsid().during("make a session")?;
    match stdio.iter().find(|fd| rustix::termios::isatty(fd)) {
        Some(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal.as_fd()).during("take the terminal")
        }
        None => Ok(()),
    }
}

/// Root may listen on low ports outside, so its agent may inside; failing that, it merely cannot.
fn allow_low_ports(identity: Identity) {
    if identity.inside().0 == 0 {
        let _ = std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "54");
    }
}

fn start_agent(
    plan: &Plan,
    identity: Identity,
    proc_mount: &OwnedFd,
    stdio: [OwnedFd; 3],
    umask: Mode,
) -> Result<Pid, SandboxError> {
    let (ours, theirs) = Control::pair().during("open a socket to the agent's process")?;
    let pid = match sys::fork().during("start the agent's process")? {
        Fork::Child => {
            drop(ours);
            agent::run(plan, &Control::from_fd(theirs), stdio, umask)
        }
        Fork::Parent(pid) => pid,
    };
    drop(theirs);
    drop(stdio);
    match ours
        .receive::<Reply>()
        .during("wait for the agent's process")?
    {
        Some((Reply::NeedMaps, _)) => {}
        Some((Reply::Failed(failure), _)) => return Err(failure.into()),
        _ => {
            return Err(SandboxError::step(
                "start the agent's process",
                "it ended early",
            ));
        }
    }
    let (uids, gids) = identity.inner_maps();
    if let Identity::Same { .. } = identity {
        write_proc(proc_mount, pid, "setgroups", "deny").during("deny changes of groups")?;
    }
    write_proc(proc_mount, pid, "uid_map", &uids).during("write the agent's user map")?;
    write_proc(proc_mount, pid, "gid_map", &gids).during("write the agent's group map")?;
    ours.send(&Request::Mapped, &[])
        .during("let the agent's process go on")?;
    // The other end closes by itself when the agent's program takes over.
    match ours
        .receive::<Reply>()
        .during("wait for the agent's program")?
    {
        None => Ok(pid),
        Some((Reply::Failed(failure), _)) => Err(failure.into()),
        Some(_) => Err(SandboxError::step(
            "start the agent's program",
            "unexpected answer",
        )),
    }
}

fn write_proc(
    proc_mount: &OwnedFd,
    pid: Pid,
    file: &str,
    content: &str,
) -> Result<(), std::io::Error> {
    let path = format!("{}/{file}", pid.as_raw_nonzero());
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(proc_mount, path, flags, Mode::empty())?;
    std::fs::File::from(fd).write_all(content.as_bytes())
}

/// Until the agent's main process ends or the monitor goes away.
fn watch(
    control: &Control,
    mut door: Option<Control>,
    children: &OwnedFd,
    agent: Pid,
) -> Result<(), SandboxError> {
    loop {
        while let Some(change) = next_change(agent) {
            let (reply, last) = match change {
                Change::Stopped => (Reply::Stopped, false),
                Change::Ended(exit) => (Reply::Exited(exit), true),
            };
            control
                .send(&reply, &[])
                .during("tell what became of the agent")?;
            if last {
                return Ok(());
            }
        }
        let mut waiting = vec![
            PollFd::new(control, PollFlags::IN),
            PollFd::new(children, PollFlags::IN),
        ];
        waiting.extend(door.as_ref().map(|door| PollFd::new(door, PollFlags::IN)));
        match rustix::event::poll(&mut waiting, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SandboxError::step("watch the agent", error)),
        }
        let happened: Vec<bool> = waiting
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        let happened = |n: usize| happened.get(n).copied().unwrap_or(false);
        if happened(1) {
            let mut drained = [0u8; 1024];
            let _ = rustix::io::read(children, &mut drained);
        }
        if happened(2) && !door.as_ref().is_some_and(hand_out) {
            door = None;
        }
        if happened(0) {
            match control.receive().during("listen to the monitor")? {
                Some((Request::Signal(signal), _)) => {
                    let _ = sys::signal_group(agent, signal);
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Makes a socket of this network namespace for the monitor; false when nobody asks any more.
fn hand_out(door: &Control) -> bool {
    let Ok(Some((Request::Socket { v6 }, _))) = door.receive() else {
        return false;
    };
    match network::socket(v6) {
        Ok(socket) => door.send(&Reply::Socket, &[socket.as_fd()]).is_ok(),
        Err(_) => door.send(&Reply::Socket, &[]).is_ok(),
    }
}

enum Change {
    Stopped,
    Ended(ExitKind),
}

/// Collects every child that has ended, up to the next news of the agent.
fn next_change(agent: Pid) -> Option<Change> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    while let Ok(Some((pid, status))) = rustix::process::wait(options) {
        match (pid == agent, status.stopped()) {
            (false, _) => {}
            (true, true) => return Some(Change::Stopped),
            (true, false) => return Some(Change::Ended(exit_kind(status))),
        }
    }
    None
}

fn exit_kind(status: WaitStatus) -> ExitKind {
    match status.terminating_signal() {
        Some(signal) => ExitKind::Signal(signal),
        None => ExitKind::Code(status.exit_status().unwrap_or(125)),
    }
}
