//! What the test binary does when it is the monitor: confines one plan, serves its descriptors
//! with stand-ins, and writes down what it saw.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sandbox::{Exit, Plan, SandboxError, Stdio};
use serde::{Deserialize, Serialize};

pub(crate) const ARGUMENT: &str = "probe";
pub(crate) const DOCTOR: &str = "doctor";

/// From the test to the probe, on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) plan: Plan,
    /// Give the agent a terminal and type this into it.
    pub(crate) terminal: Option<String>,
    /// What to do once the agent has written a line.
    pub(crate) deed: Option<Deed>,
    /// Let the agent run until this file is there, then end this process without clean-up.
    pub(crate) die_at: Option<String>,
}

impl Order {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            terminal: None,
            deed: None,
            die_at: None,
        }
    }
}

/// Something that happens to a running agent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// A signal to its process group.
    Signal(i32),
    /// [`sandbox::Agent::kill`].
    Kill,
    /// The end of our process so many levels above the agent's: 1 is init, 2 the outer process.
    EndAncestor(u32),
}

impl Deed {
    fn carry_out(self, agent: &sandbox::Agent) -> Result<(), SandboxError> {
        match self {
            Self::Signal(signal) => agent.signal(signal)?,
            Self::Kill => agent.kill(),
            Self::EndAncestor(levels) => {
                let mut pid = agent.pid().expect("the agent's pid");
                for _ in 0..levels {
                    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
                    pid = parent.unwrap().parse().unwrap();
                }
                let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
        Ok(())
    }
}

/// From the probe to the test, on its standard output.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) error: Option<String>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Destinations of the connections that arrived.
    pub(crate) tcp: Vec<String>,
    /// Resolver addresses that were asked.
    pub(crate) udp: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) start_us: u128,
    pub(crate) pid: Option<u32>,
}

pub(crate) fn main() {
    if std::env::args().nth(2).as_deref() == Some(DOCTOR) {
        serde_json::to_writer(std::io::stdout(), &sandbox::doctor()).expect("the test reads");
        return;
    }
    let order: Order = serde_json::from_reader(std::io::stdin()).expect("an order on stdin");
    let seen = match confine(&order) {
        Ok(seen) => seen,
        Err(error) => Seen {
            code: error.exit_code().into(),
            error: Some(error.to_string()),
            ..Seen::default()
        },
    };
    serde_json::to_writer(std::io::stdout(), &seen).expect("the test reads the answer");
}

fn confine(order: &Order) -> Result<Seen, SandboxError> {
    let begin = Instant::now();
    let mut prepared = sandbox::prepare(&order.plan)?;
    let tcp = Arc::new(Mutex::new(Vec::new()));
    let udp = Arc::new(Mutex::new(Vec::new()));
    for listener in std::mem::take(&mut prepared.tcp) {
        let log = Arc::clone(&tcp);
        std::thread::spawn(move || greet(listener, &log));
    }
    for socket in std::mem::take(&mut prepared.udp) {
        let log = Arc::clone(&udp);
        std::thread::spawn(move || resolve(&socket, &log));
    }
    if let Some(fuse) = prepared.fuse.take() {
        let config = fuser::Config::default();
        std::thread::spawn(move || {
            let session =
                fuser::Session::from_fd(crate::tree::OneTree, fuse, fuser::SessionACL::All, config);
            session.expect("FUSE handshake").run()
        });
    }
    let notes = prepared.notes.clone();
    let (stdio, mut output, errors) = streams(order);
    let agent = prepared.start(stdio)?;
    let start_us = begin.elapsed().as_micros();
    let pid = agent.pid();
    if let Some(file) = &order.die_at {
        while !std::path::Path::new(file).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("{}", pid.expect("the agent's pid"));
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .expect("dying");
    }
    let mut stdout = String::new();
    if let Some(deed) = order.deed {
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            stdout.push(char::from(byte[0]));
        }
        stdout.push('\n');
        deed.carry_out(&agent)?;
    }
    let errors = errors.map(|mut errors| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        })
    });
    let mut bytes = Vec::new();
    let _ = output.read_to_end(&mut bytes);
    stdout.push_str(&String::from_utf8_lossy(&bytes));
    let exit = agent.wait()?;
    let seen = Seen {
        code: exit.code(),
        signal: match exit {
            Exit::Signal(signal) => Some(signal),
            _ => None,
        },
        error: None,
        stdout,
        stderr: errors
            .map(|errors| errors.join().unwrap())
            .unwrap_or_default(),
        tcp: tcp.lock().unwrap().clone(),
        udp: udp.lock().unwrap().clone(),
        notes,
        start_us,
        pid,
    };
    Ok(seen)
}

/// The agent's streams, and our ends of them: output, and errors unless they are the same.
fn streams(order: &Order) -> (Stdio, std::fs::File, Option<std::fs::File>) {
    use rustix::pipe::{PipeFlags, pipe_with};
    if let Some(input) = &order.terminal {
        use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let mut ours = std::fs::File::from(ours);
        ours.write_all(input.as_bytes()).unwrap();
        let copy = |fd: &OwnedFd| fd.as_fd().try_clone_to_owned().unwrap();
        let stdio = Stdio {
            stdin: copy(&theirs),
            stdout: copy(&theirs),
            stderr: theirs,
        };
        return (stdio, ours, None);
    }
    let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (err_read, err_write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let stdin = std::fs::File::open("/dev/null").unwrap().into();
    let stdio = Stdio {
        stdin,
        stdout: out_write,
        stderr: err_write,
    };
    (stdio, out_read.into(), Some(err_read.into()))
}

/// Tells everyone who connects whom they connected to.
fn greet(listener: OwnedFd, log: &Mutex<Vec<String>>) {
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(false).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let to = stream.local_addr().unwrap();
        log.lock().unwrap().push(to.to_string());
        let _ = stream.write_all(format!("you meant {to}\n").as_bytes());
    }
}

/// Answers every query with 192.0.2.7 (or ::ffff:192.0.2.7), whatever the name.
fn resolve(socket: &OwnedFd, log: &Mutex<Vec<String>>) {
    rustix::io::ioctl_fionbio(socket, false).unwrap();
    while let Ok(to) = crate::sys::answer(socket.as_fd(), answer) {
        log.lock().unwrap().push(to.to_string());
    }
}

fn answer(query: &[u8]) -> Vec<u8> {
    let question_end = query
        .iter()
        .skip(12)
        .position(|byte| *byte == 0)
        .map_or(12, |at| at + 17);
    let mut reply = query[..question_end.min(query.len())].to_vec();
    reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    let kind = query.get(question_end - 3).copied().unwrap_or(1);
    let address: &[u8] = &[192, 0, 2, 7];
    if kind == 1 {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        reply.extend(address);
    } else {
        reply[7] = 0;
    }
    reply
}
