//! Ctrl-Z and `fg`, fatal signals and panics, seen by a real shell on a real pseudo-terminal: the
//! test program runs itself again as a small Kairos under `bash -i`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use rustix::fd::OwnedFd;
use rustix::process::{Pid, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use term::{Callbacks, Signal, Stdio, Terminal};

const ROLE: &str = "KAIROS_TERM_TEST_AGENT";

/// Not a test of its own: the small Kairos, when the variable names an agent's script.
#[test]
fn small_kairos() {
    let Ok(script) = std::env::var(ROLE) else {
        return;
    };
    let agent_pid: Arc<Mutex<Option<Pid>>> = Arc::default();
    let pid = Arc::clone(&agent_pid);
    let signal = move |signal| {
        let signal = match signal {
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Continue => rustix::process::Signal::CONT,
            _ => rustix::process::Signal::TERM,
        };
        if let Some(pid) = *pid.lock().unwrap() {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    };
    let callbacks = Callbacks {
        task: Box::new(|_| {}),
        signal: Box::new(signal),
    };
    let (mut terminal, streams) = Terminal::open(Stdio::detect().unwrap(), callbacks).unwrap();
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "sh", "-c", &script])
        .env_remove(ROLE);
    command
        .stdin(streams.stdin)
        .stdout(streams.stdout)
        .stderr(streams.stderr);
    let child = command.spawn().unwrap();
    drop(command);
    drop(streams.controlling);
    let pid = Pid::from_child(&child);
    *agent_pid.lock().unwrap() = Some(pid);
    terminal.start().unwrap();
    match std::env::var("KAIROS_TERM_TEST_DIE").as_deref() {
        Ok("panic") => panic!("on purpose"),
        Ok("abort") => std::process::abort(),
        Ok("exit") => std::process::exit(3),
        _ => {}
    }
    let status = loop {
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        if !status.stopped() {
            break status.exit_status().unwrap_or(99);
        }
        terminal.suspend();
        kill_process(pid, rustix::process::Signal::CONT).unwrap();
    };
    terminal.finish();
    std::process::exit(status);
}

struct Shell {
    master: File,
    slave: OwnedFd,
    child: Child,
    seen: String,
}

impl Shell {
    /// A person's shell.
    fn start() -> Self {
        let bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
        let mut shell = Self::with(&bash);
        shell.wait_for("READY> ");
        shell
    }

    fn with(command: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let stream = || slave.try_clone().unwrap();
        let child = Command::new("setsid")
            .args(["--wait", "--ctty"])
            .args(command)
            .env("PS1", "READY> ")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        Self {
            master: File::from(master),
            slave,
            child,
            seen: String::new(),
        }
    }

    /// Runs the small Kairos as a foreground job.
    fn run(&mut self, script: &str, die: &str) {
        let program = std::env::current_exe().unwrap();
        let arguments = "small_kairos --exact --nocapture --test-threads=1";
        let command = format!("{} {arguments}", program.display());
        // Bash itself puts the terminal back after a job that a signal killed, so one that is to die
        // gets a parent that ends well.
        let command = if die.is_empty() {
            command
        } else {
            format!("sh -c '{command}; true'")
        };
        let line = format!("{ROLE}='{script}' KAIROS_TERM_TEST_DIE={die} {command}\n");
        self.type_in(&line);
    }

    fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen, and forgets everything up to it.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        let mut chunk = [0; 4096];
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            assert!(Instant::now() < until, "no `{text}` in {:?}", self.seen);
            let mut fds = [rustix::event::PollFd::new(
                &self.master,
                rustix::event::PollFlags::IN,
            )];
            let tick = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            if rustix::event::poll(&mut fds, Some(&tick)).unwrap() > 0 {
                let n = self.master.read(&mut chunk).unwrap();
                self.seen.push_str(&String::from_utf8_lossy(&chunk[..n]));
            }
        }
    }

    #[track_caller]
    fn wait_for_raw(&self, raw: bool) {
        let until = Instant::now() + Duration::from_secs(20);
        let is_raw = || {
            !tcgetattr(&self.slave)
                .unwrap()
                .local_modes
                .contains(LocalModes::ISIG)
        };
        while is_raw() != raw {
            assert!(Instant::now() < until, "the terminal should be raw: {raw}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_agent_that_stops_stops_kairos_and_goes_on_with_fg() {
    let mut shell = Shell::start();
    shell.run(
        "echo one$((1)); kill -STOP $$; stty size; read -r x; echo two$x; exit 5",
        "",
    );
    shell.wait_for("one1");
    shell.wait_for("Stopped");
    shell.wait_for("READY> ");
    shell.wait_for_raw(false);
    shell.type_in("stty rows 41 cols 91; fg\n");
    shell.wait_for("41 91");
    shell.wait_for_raw(true);
    shell.type_in("x\r");
    shell.wait_for("twox");
    shell.wait_for("READY> ");
    shell.wait_for_raw(false);
    shell.type_in("echo status $?\n");
    shell.wait_for("status 5");
}

/// Unlike bash, this shell leaves the terminal's mode as it finds it.
#[test]
fn while_kairos_is_stopped_the_terminal_has_its_own_mode() {
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "set -m; {ROLE}='kill -STOP $$; echo agent goes on' {} small_kairos --exact --nocapture
         echo stopped; stty -a | grep -wo -e -isig -e isig; fg; echo over",
        program.display()
    );
    let mut shell = Shell::with(&["sh", "-c", &script]);
    shell.wait_for("stopped\r\nisig");
    shell.wait_for("agent goes on");
    shell.wait_for("over");
    shell.wait_for_raw(false);
}

#[test]
fn a_stop_from_outside_stops_the_agent_too() {
    let mut shell = Shell::start();
    shell.run("echo begin; while :; do sleep 0.1; done", "");
    shell.wait_for("begin");
    shell.wait_for_raw(true);
    // SIGTSTP as another program of the same job would get it.
    let kairos = foreground(&shell.child);
    kill_process(kairos, rustix::process::Signal::TSTP).unwrap();
    shell.wait_for("Stopped");
    shell.wait_for_raw(false);
    shell.type_in("fg\n");
    shell.wait_for_raw(true);
    kill_process(kairos, rustix::process::Signal::TERM).unwrap();
    shell.wait_for("READY> ");
    shell.wait_for_raw(false);
}

/// The process in the foreground of the shell's terminal: a child of `bash`.
fn foreground(setsid: &Child) -> Pid {
    let children = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
    };
    // `setsid --wait` forks only if it leads a group; else it has become bash itself.
    let mut pid = setsid.id();
    loop {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        let below = children(pid);
        let first = below
            .split_whitespace()
            .next()
            .map(|p| p.parse::<u32>().unwrap());
        match first {
            Some(child) if name.trim() == "bash" => {
                return Pid::from_raw(i32::try_from(child).unwrap()).unwrap();
            }
            Some(child) => pid = child,
            None => panic!("no child of {name}"),
        }
    }
}

#[test]
fn every_end_of_kairos_restores_the_terminal() {
    for (die, said) in [("panic", "on purpose"), ("abort", "Aborted"), ("exit", "")] {
        let mut shell = Shell::start();
        shell.run("sleep 1", die);
        shell.wait_for(said);
        shell.wait_for("READY> ");
        shell.wait_for_raw(false);
        shell.type_in("stty -a | tr \\; \\\\n | grep -wo -e -isig -e isig; echo checked\n");
        shell.wait_for("\nisig");
        shell.wait_for("checked");
    }
}
