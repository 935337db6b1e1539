//! One session's terminal, from opening to the restored screen.

use crate::pty::{Pty, resize};
use crate::relay::{Input, Output, Sink};
use crate::signals::Watcher;
use crate::stdio::{AgentStdio, Arrangement, Stderr, Stdio};
use crate::sys::stop_own_group;
use crate::tty::Tty;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A signal that Kairos got and that the session has to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C while the terminal is not raw, or `kill -INT`: pass it to the agent.
    Interrupt,
    /// Ctrl-\ likewise.
    Quit,
    /// End the session in order.
    Terminate,
    /// The terminal is gone: end the session in order, nobody sees more output.
    HangUp,
    /// Kairos is about to be stopped: stop the agent. When this callback returns, Kairos stops.
    Stop,
    /// Kairos goes on: continue the agent.
    Continue,
}

/// Told each line that the principal types.
pub type OnTask = Box<dyn FnMut(&str) + Send>;

/// Told each signal.
pub type OnSignal = Box<dyn FnMut(Signal) + Send>;

/// Who is told what. Each is called from a thread of this crate, must not wait for the end of the
/// session, and should return soon: until `task` returns, the agent does not see the line that was
/// entered.
pub struct Callbacks {
    /// Gets each line that the principal types.
    pub task: OnTask,
    /// Gets each signal.
    pub signal: OnSignal,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callbacks")
    }
}

/// Why the terminal could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}; {help}")]
pub struct TermError {
    what: &'static str,
    help: &'static str,
    source: io::Error,
}

impl TermError {
    fn with(what: &'static str, help: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { what, help, source }
    }
}

/// The terminal channel of one session. Dropping it restores the terminal.
pub struct Terminal {
    shared: Arc<Shared>,
    stdio: Option<Stdio>,
    arrangement: Arrangement,
    pipes: Pipes,
    inputs: Vec<JoinHandle<()>>,
    outputs: Vec<JoinHandle<()>>,
    watcher: Option<Watcher>,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal")
            .field("arrangement", &self.arrangement)
            .finish_non_exhaustive()
    }
}

impl Terminal {
    /// Makes the streams that the agent gets. The principal's terminal is not touched yet.
    ///
    /// # Errors
    /// When no pseudo-terminal or pipe can be made.
    pub fn open(stdio: Stdio, callbacks: Callbacks) -> Result<(Self, AgentStdio), TermError> {
        open(stdio, callbacks).map_err(TermError::with(
            "make a pseudo-terminal and pipes for the agent",
            "check that /dev/ptmx can be opened and that the limit on open files allows more",
        ))
    }

    /// Switches the principal's terminal to raw mode, where there is one, and begins to carry bytes.
    ///
    /// # Errors
    /// When the terminal's mode cannot be set or a thread cannot be started.
    pub fn start(&mut self) -> Result<(), TermError> {
        let Some(stdio) = self.stdio.take() else {
            return Ok(());
        };
        self.begin(stdio).map_err(TermError::with(
            "take over the terminal",
            "run with stdin, stdout and stderr redirected to use no terminal at all",
        ))
    }

    /// Stops Kairos as Ctrl-Z does, with the terminal restored, and returns when it was continued,
    /// with the terminal taken over again. For the sandbox, when the agent's main process has
    /// stopped; the caller then continues the agent.
    pub fn suspend(&self) {
        self.shared.suspend(false);
    }

    /// A handle for [`Terminal::suspend`] that another thread may own.
    #[must_use]
    pub fn suspender(&self) -> Suspender {
        Suspender(Arc::clone(&self.shared))
    }

    /// Ends the channel after the agent has ended: all of its output is carried out, the modes it
    /// left on are undone, and the terminal is put back.
    pub fn finish(mut self) {
        self.end();
    }

    fn begin(&mut self, stdio: Stdio) -> io::Result<()> {
        let Pipes {
            stdin,
            stdout,
            stderr,
            unread,
        } = std::mem::take(&mut self.pipes);
        let file = stdio.stdin_is_file();
        let pty_input = self.arrangement.pty && self.arrangement.keyboard;
        if pty_input && let Some(tty) = &self.shared.tty {
            tty.enter_raw()?;
        }
        self.watcher = Some(Watcher::start(Arc::clone(&self.shared))?);
        let sink = match (&self.shared.master, stdin) {
            (Some(master), None) => Some(Sink::Pty(Arc::clone(master))),
            (_, Some(pipe)) => Some(Sink::Pipe(pipe)),
            (None, None) => None,
        };
        if let Some(sink) = sink {
            let input = Input {
                source: stdio.stdin,
                sink,
                keyboard: self.arrangement.keyboard,
                unread: unread.filter(|_| file),
                shared: Arc::clone(&self.shared),
            };
            self.inputs.push(thread("term-input", move || input.run())?);
        }
        if let Some(source) = self.shared.master.clone().or(stdout.map(Arc::new)) {
            self.output("term-stdout", source, stdio.stdout, self.arrangement.pty)?;
        }
        if let Some(source) = stderr {
            let filtered = self.arrangement.stderr == Stderr::Filtered;
            self.output("term-stderr", Arc::new(source), stdio.stderr, filtered)?;
        }
        Ok(())
    }

    fn output(
        &mut self,
        name: &str,
        source: Arc<OwnedFd>,
        target: OwnedFd,
        filtered: bool,
    ) -> io::Result<()> {
        let output = Output {
            source,
            target,
            filtered,
            shared: Arc::clone(&self.shared),
        };
        self.outputs.push(thread(name, move || output.run())?);
        Ok(())
    }

    fn end(&mut self) {
        self.shared.over();
        for thread in self.outputs.drain(..).chain(self.inputs.drain(..)) {
            let _ = thread.join();
        }
        self.watcher = None;
        // The handler stays registered; from now on Ctrl-C does what it does to any program.
        let over = Arc::new(AtomicBool::new(true));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            // Where it cannot be registered the signal is ignored, as it was.
            let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&over));
        }
        if let Some(tty) = &self.shared.tty
            && tty.is_raw()
        {
            tty.forget_input();
            tty.leave_raw();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Stops Kairos as Ctrl-Z does; see [`Terminal::suspend`].
#[derive(Clone)]
pub struct Suspender(Arc<Shared>);

impl fmt::Debug for Suspender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspender")
    }
}

impl Suspender {
    /// See [`Terminal::suspend`].
    pub fn suspend(&self) {
        self.0.suspend(false);
    }
}

/// What the threads have in common.
pub(crate) struct Shared {
    task: Mutex<OnTask>,
    signal: Mutex<OnSignal>,
    /// The principal's terminal, if the agent has a pseudo-terminal.
    tty: Option<Tty>,
    /// Whether the keyboard is carried to the pseudo-terminal, in raw mode.
    raw: bool,
    master: Option<Arc<OwnedFd>>,
    over: AtomicBool,
    /// Readable from the end of the session on; wakes every thread.
    over_fd: OwnedFd,
    /// Held while this process is being stopped.
    suspending: Mutex<()>,
}

impl Shared {
    pub(crate) fn task(&self, text: &str) {
        (self.task.lock().unwrap_or_else(PoisonError::into_inner))(text);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        (self.signal.lock().unwrap_or_else(PoisonError::into_inner))(signal);
    }

    pub(crate) fn resize(&self) {
        if let (Some(tty), Some(master)) = (&self.tty, &self.master) {
            let _ = resize(master, tty);
        }
    }

    /// After a stop, or whenever somebody else may have changed the terminal.
    pub(crate) fn resume(&self) {
        if let Some(tty) = &self.tty
            && self.raw
            && !self.is_over()
        {
            let _ = tty.enter_raw();
        }
        self.resize();
    }

    /// Stops this process's group, the agent before and after being told if `tell`. Whoever comes
    /// while that goes on only waits for its end: an agent that was told to stop is seen as stopped.
    pub(crate) fn suspend(&self, tell: bool) {
        let _one = match self.suspending.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(one)) => one.into_inner(),
            Err(TryLockError::WouldBlock) => {
                drop(self.suspending.lock());
                return;
            }
        };
        if tell {
            self.signal(Signal::Stop);
        }
        self.let_output_out();
        if let Some(tty) = &self.tty {
            tty.hold();
        }
        stop_own_group();
        if let Some(tty) = &self.tty {
            tty.release();
        }
        self.resume();
        if tell {
            self.signal(Signal::Continue);
        }
    }

    /// Waits until the agent's last words are on their way, but not for one that never ends.
    fn let_output_out(&self) {
        let Some(master) = &self.master else { return };
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        for _ in 0..10 {
            let mut fds = [PollFd::new(master, PollFlags::IN)];
            if poll(&mut fds, Some(&pause)) == Ok(0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether what is typed is for us to read: not while this job is in the background.
    pub(crate) fn claim_keyboard(&self) -> bool {
        match &self.tty {
            Some(tty) if self.raw => {
                if !tty.is_raw() {
                    let _ = tty.enter_raw();
                }
                tty.is_raw() && tty.is_foreground()
            }
            Some(tty) => tty.is_foreground(),
            None => true,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn over_fd(&self) -> BorrowedFd<'_> {
        self.over_fd.as_fd()
    }

    pub(crate) fn wait_until_over(&self, at_most: Option<Duration>) {
        let timeout = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
        let mut fds = [PollFd::from_borrowed_fd(self.over_fd(), PollFlags::IN)];
        while poll(&mut fds, timeout.as_ref()).is_err_and(|e| e == rustix::io::Errno::INTR) {}
    }

    fn over(&self) {
        self.over.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.over_fd, &1u64.to_ne_bytes());
    }
}

/// Kairos's ends of the pipes.
#[derive(Default)]
struct Pipes {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Another descriptor of the end of stdin that the agent reads.
    unread: Option<OwnedFd>,
}

fn open(stdio: Stdio, callbacks: Callbacks) -> io::Result<(Terminal, AgentStdio)> {
    let arrangement = stdio.arrangement();
    let raw = arrangement.pty && arrangement.keyboard;
    let mut pipes = Pipes::default();
    // The terminal that is asked for its size and put into raw mode is the one that is typed on.
    let tty = match (arrangement.pty, arrangement.keyboard) {
        (_, true) => Some(Tty::new(stdio.stdin.try_clone()?)?),
        (true, false) => Some(Tty::new(stdio.stdout.try_clone()?)?),
        (false, false) => None,
    };
    let pty = match &tty {
        Some(tty) if arrangement.pty => Some(Pty::like(tty, raw)?),
        _ => None,
    };
    let slave = |pty: &Pty| pty.slave.try_clone();

    let stdin = match &pty {
        Some(pty) if raw => slave(pty)?,
        _ => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            nonblocking(&write)?;
            pipes.stdin = Some(write);
            pipes.unread = Some(read.try_clone()?);
            read
        }
    };
    let stdout = match &pty {
        Some(pty) => slave(pty)?,
        None => agent_writes(&mut pipes.stdout)?,
    };
    let stderr = match (arrangement.stderr, &pty) {
        (Stderr::Pty, Some(pty)) => slave(pty)?,
        (Stderr::WithStdout, _) => stdout.try_clone()?,
        _ => agent_writes(&mut pipes.stderr)?,
    };
    let (master, controlling, pty_path) = match pty {
        Some(Pty {
            master,
            slave,
            path,
        }) => (Some(Arc::new(master)), Some(slave), Some(path)),
        None => (None, None, None),
    };
    let shared = Arc::new(Shared {
        task: Mutex::new(callbacks.task),
        signal: Mutex::new(callbacks.signal),
        tty,
        raw,
        master,
        over: AtomicBool::new(false),
        over_fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        suspending: Mutex::new(()),
    });
    let terminal = Terminal {
        shared,
        stdio: Some(stdio),
        arrangement,
        pipes,
        inputs: Vec::new(),
        outputs: Vec::new(),
        watcher: None,
    };
    Ok((
        terminal,
        AgentStdio {
            stdin,
            stdout,
            stderr,
            controlling,
            pty_path,
        },
    ))
}

/// A pipe that the agent writes: its end is returned, ours is kept.
fn agent_writes(ours: &mut Option<OwnedFd>) -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&read)?;
    *ours = Some(read);
    Ok(write)
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
}
