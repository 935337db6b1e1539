//! Signals that Kairos itself gets: the window changed, end, stop, go on.

use crate::sys::is_ignored;
use crate::terminal::{Shared, Signal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The thread that waits for signals; ends on drop.
pub(crate) struct Watcher {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let wanted = [SIGWINCH, SIGCONT, SIGTSTP, SIGTERM, SIGHUP, SIGINT, SIGQUIT];
        // What was ignored from the start stays so: `nohup`, a background job of a script.
        let mut signals = Signals::new(wanted.into_iter().filter(|&signal| !is_ignored(signal)))?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new()
            .name("term-signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    match signal {
                        SIGWINCH => shared.resize(),
                        SIGCONT => shared.resume(),
                        SIGTSTP => shared.suspend(true),
                        SIGTERM => shared.signal(Signal::Terminate),
                        SIGHUP => shared.signal(Signal::HangUp),
                        SIGINT => shared.signal(Signal::Interrupt),
                        SIGQUIT => shared.signal(Signal::Quit),
                        _ => {}
                    }
                }
            })?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
