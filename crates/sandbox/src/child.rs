//! The hidden entry point: this program, started again with one thread, becomes the outer
//! process, which enters N0 and waits for init to end.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use crate::control::{Control, Failure, Reply, Request};
use crate::doctor::{CheckName, namespace_check};
use crate::error::During;
use crate::identity::Identity;
use crate::sys::{self, Fork};
use crate::{SandboxError, init, view};

/// First argument that makes this program a part of the boundary instead of itself.
pub(crate) const HIDDEN_ARGUMENT: &str = "__kairos-sandbox";

/// Call this first thing in `main`: if this process was started by [`crate::prepare`] or
/// [`crate::doctor`], it does its part and never returns; otherwise it returns at once.
pub fn child_main_if_requested() {
    if std::env::args_os().nth(1).as_deref() != Some(OsStr::new(HIDDEN_ARGUMENT)) {
        return;
    }
    let control = match take_control() {
        Ok(control) => control,
        Err(error) => {
            eprintln!("{HIDDEN_ARGUMENT} is for Kairos itself, not for people: {error}");
            std::process::exit(125);
        }
    };
    let failure = match outer(&control) {
        Ok(()) => std::process::exit(0),
        Err(error) => Failure::from(error),
    };
    let _ = control.send(&Reply::Failed(failure), &[]);
    std::process::exit(125);
}

/// Enters N0. The same for a real run and for a probe of the host.
pub(crate) fn enter_outer_namespaces(
    control: &Control,
    identity: Identity,
) -> Result<(), SandboxError> {
    let host = |check: CheckName, error: rustix::io::Errno| SandboxError::Host {
        check: check.missing(error.to_string()),
    };
    sys::unshare_user().map_err(|error| host(CheckName::UserNamespaces, error))?;
    control
        .send(&Reply::NeedMaps, &[])
        .during("ask for the id maps")?;
    match control.receive().during("wait for the id maps")? {
        Some((Request::Mapped, _)) => {}
        _ => {
            return Err(SandboxError::step(
                "wait for the id maps",
                "the monitor is gone",
            ));
        }
    }
    if identity == Identity::Shifted {
        let root_gid = rustix::process::Gid::ROOT;
        let root_uid = rustix::process::Uid::ROOT;
        rustix::thread::set_thread_groups(&[]).during("drop supplementary groups")?;
        rustix::thread::set_thread_res_gid(root_gid, root_gid, root_gid)
            .during("become the agent's group")?;
        rustix::thread::set_thread_res_uid(root_uid, root_uid, root_uid)
            .during("become the agent's user")?;
    }
    let rest = UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    sys::unshare(rest).map_err(|error| host(namespace_check(CheckName::OtherNamespaces), error))
}

/// The control socket arrives as standard input. Nothing else that the monitor had open may stay.
fn take_control() -> io::Result<Control> {
    sys::close_from(3)?;
    let stdin = io::stdin();
    let kind = rustix::net::sockopt::socket_type(stdin.as_fd())?;
    if kind != rustix::net::SocketType::SEQPACKET {
        return Err(io::Error::other("standard input is not the control socket"));
    }
    let control = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(Control::from_fd(control))
}

fn outer(control: &Control) -> Result<(), SandboxError> {
    // Out of the terminal's foreground group: only the monitor decides about its signals.
    let _ = rustix::process::setsid();
    let next = || {
        control
            .receive()
            .during("read the plan")?
            .ok_or_else(|| SandboxError::step("read the plan", "the monitor is gone"))
    };
    match next()?.0 {
        Request::Enter { identity, trees } => {
            enter_outer_namespaces(control, identity)?;
            // Here and not in init: requests then name tasks as the monitor's own `/proc` does.
            let fuse = match trees {
                true => Some(view::mount_fuse(identity)?),
                false => None,
            };
            match sys::fork().during("start init")? {
                Fork::Child => init::run(control, identity, fuse),
                Fork::Parent(pid) => {
                    // Only the monitor keeps it.
                    drop(fuse);
                    let ended = rustix::process::waitpid(Some(pid), WaitOptions::empty());
                    ended.map(|_| ()).during("wait for init")
                }
            }
        }
        Request::Probe(identity) => crate::doctor::probe(control, identity),
        other => Err(SandboxError::step("start", format!("unexpected {other:?}"))),
    }
}

/// Ends this process with its parent, and keeps it from being looked into.
pub(crate) fn tie_to_parent() -> Result<(), SandboxError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .during("tie init to the outer process")?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .during("close init to inspection")
}
