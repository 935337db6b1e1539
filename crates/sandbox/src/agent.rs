//! The process that becomes the agent: it enters N1, gives up what it still holds, and executes
//! the program.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

use crate::control::{Control, Failure, Reply, Request};
use crate::error::During;
use crate::plan::{DEFAULT_PATH, Plan};
use crate::{SandboxError, landlock, seccomp, sys};

/// Never returns: either the program runs, or init is told why not.
pub(crate) fn run(plan: &Plan, init: &Control, stdio: [OwnedFd; 3], umask: Mode) -> ! {
    let error = match become_agent(plan, init, stdio, umask) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let _ = init.send(&Reply::Failed(Failure::from(error)), &[]);
    std::process::exit(125)
}

enum Never {}

/// The order matters: each step takes away what an earlier one still needed.
fn become_agent(
    plan: &Plan,
    init: &Control,
    stdio: [OwnedFd; 3],
    umask: Mode,
) -> Result<Never, SandboxError> {
    let program = Program::new(plan)?;
    sys::unshare_user().during("enter the agent's user namespace")?;
    init.send(&Reply::NeedMaps, &[])
        .during("ask for the agent's id maps")?;
    match init.receive().during("wait for the agent's id maps")? {
        Some((Request::Mapped, _)) => {}
        _ => {
            return Err(SandboxError::step(
                "wait for the agent's id maps",
                "init is gone",
            ));
        }
    }
    take_terminal(stdio)?;
    limit_resources(plan)?;
    sys::new_session_keyring()
        .or_else(ignore_missing)
        .during("leave the user's keyring")?;
    if !plan.nested_namespaces {
        forbid_nesting()?;
    }
    rustix::process::umask(umask);
    rustix::process::chdir(&plan.cwd)
        .during_with(|| format!("enter the working directory `{}`", plan.cwd.display()))?;
    rustix::thread::clear_ambient_capability_set().during("drop ambient capabilities")?;
    rustix::thread::set_no_new_privs(true).during("forbid new privileges")?;
    landlock::restrict(plan)?;
    sys::reset_signals();
    sys::close_from_on_exec(3).during("close inherited descriptors")?;
    seccomp::restrict(plan.nested_namespaces)?;
    Err(program.execute())
}

/// A process group of its own, in the foreground of the terminal where there is one.
fn take_terminal(stdio: [OwnedFd; 3]) -> Result<(), SandboxError> {
    rustix::process::setpgid(None, None).during("make a process group")?;
    let [stdin, stdout, stderr] = stdio;
    let terminal = [&stdin, &stdout, &stderr]
        .into_iter()
        .find(|fd| rustix::termios::isatty(fd));
    if let Some(terminal) = terminal {
        // A group in the background that takes the foreground would be stopped for it.
        sys::block_signal(libc::SIGTTOU).during("hold a signal back")?;
        rustix::termios::tcsetpgrp(terminal.as_fd(), rustix::process::getpid())
            .during("come to the terminal's foreground")?;
    }
    rustix::stdio::dup2_stdin(&stdin).during("connect standard input")?;
    rustix::stdio::dup2_stdout(&stdout).during("connect standard output")?;
    rustix::stdio::dup2_stderr(&stderr).during("connect standard error")
}

fn limit_resources(plan: &Plan) -> Result<(), SandboxError> {
    // One byte, not zero: the kernel runs a core-dump helper of the host, outside the boundary
    // and on the agent's memory, for every limit but one.
    let core = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    rustix::process::setrlimit(Resource::Core, core).during("forbid core dumps")?;
    if let Some(most) = plan.processes_max {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        rustix::process::setrlimit(Resource::Nproc, limit).during("limit processes")?;
    }
    Ok(())
}

/// No user namespace below N1, and no capability in it that could take the limit back.
fn forbid_nesting() -> Result<(), SandboxError> {
    std::fs::write("/proc/sys/user/max_user_namespaces", "0")
        .during("forbid nested user namespaces")?;
    let given_up = CapabilitySet::all().difference(KEPT_WITHOUT_NESTING);
    for capability in given_up.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability that this kernel does not know cannot be held either.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(SandboxError::step("drop capabilities", error)),
        }
    }
    Ok(())
}

/// What an agent of root needs to handle files in its own trees.
const KEPT_WITHOUT_NESTING: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ENOSYS) {
        Ok(())
    } else {
        Err(error)
    }
}

/// Everything that exec needs, made ready before anything is given up.
struct Program {
    name: OsString,
    candidates: Vec<PathBuf>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    fn new(plan: &Plan) -> Result<Self, SandboxError> {
        let name = plan.command.first().cloned().unwrap_or_default();
        let candidates = if name.as_bytes().contains(&b'/') {
            vec![PathBuf::from(&name)]
        } else {
            let path = plan.env.get(OsStr::new("PATH"));
            let path = path.cloned().unwrap_or_else(|| DEFAULT_PATH.into());
            std::env::split_paths(&path)
                .filter(|directory| directory.is_absolute())
                .map(|directory| directory.join(&name))
                .collect()
        };
        let text = |text: &OsStr| CString::new(text.as_bytes()).during("use the command");
        let pair = |name: &OsStr, value: &OsStr| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.push(b'=');
            bytes.extend(value.as_bytes());
            CString::new(bytes).during("use the environment")
        };
        Ok(Self {
            arguments: plan
                .command
                .iter()
                .map(|word| text(word))
                .collect::<Result<_, _>>()?,
            environment: plan
                .env
                .iter()
                .map(|(name, value)| pair(name, value))
                .collect::<Result<_, _>>()?,
            name,
            candidates,
        })
    }

    /// As a shell does: the first that can be executed; one without a header is a shell script.
    fn execute(&self) -> SandboxError {
        let program = self.name.to_string_lossy().into_owned();
        let mut refused = None;
        for candidate in &self.candidates {
            let error = self.execute_one(candidate);
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) if !candidate.exists() => {}
                Some(libc::ENOENT) => {
                    let path = candidate.display();
                    let message = format!("`{path}` names an interpreter that is not there");
                    return SandboxError::NotExecutable { program, message };
                }
                _ => refused = Some(format!("`{}`: {error}", candidate.display())),
            }
        }
        match refused {
            Some(message) => SandboxError::NotExecutable { program, message },
            None => SandboxError::NotFound { program },
        }
    }

    fn execute_one(&self, path: &Path) -> io::Error {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return io::Error::from_raw_os_error(libc::ENOENT);
        };
        let error = sys::exec(&path, &self.arguments, &self.environment);
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        let shell = c"/bin/sh".to_owned();
        let mut arguments = vec![shell.clone(), path];
        arguments.extend(self.arguments.iter().skip(1).cloned());
        sys::exec(&shell, &arguments, &self.environment)
    }
}
