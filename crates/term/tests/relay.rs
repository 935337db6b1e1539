//! The terminal channel between a real pseudo-terminal, in the place of the principal's, and real
//! programs in the place of the agent.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{getpid, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use term::{AgentStdio, Callbacks, Signal, Stdio, Terminal};

const PATIENCE: Duration = Duration::from_secs(20);

/// The principal's terminal, seen from the emulator's side.
struct Screen {
    master: File,
    slave: OwnedFd,
    seen: Vec<u8>,
}

impl Screen {
    fn new(rows: u16, cols: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        fcntl_setfl(&master, fcntl_getfl(&master).unwrap() | OFlags::NONBLOCK).unwrap();
        let screen = Self {
            master: File::from(master),
            slave,
            seen: Vec::new(),
        };
        screen.resize(rows, cols);
        screen
    }

    fn resize(&self, rows: u16, cols: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).unwrap();
    }

    fn look(&mut self) {
        let mut chunk = [0; 65536];
        while let Ok(n @ 1..) = self.master.read(&mut chunk) {
            self.seen.extend_from_slice(&chunk[..n]);
        }
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.text().contains(text) {
            assert!(Instant::now() < until, "no `{text}` in {:?}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn text(&mut self) -> String {
        self.look();
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    }

    /// Types without ever blocking, reading the screen in between as an emulator does.
    fn type_in(&mut self, bytes: &[u8]) {
        let until = Instant::now() + PATIENCE;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.master.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            self.look();
            assert!(
                Instant::now() < until,
                "{} bytes could not be typed",
                rest.len()
            );
        }
    }

    /// Ends the session while going on to read, as an emulator does.
    fn finish(&mut self, terminal: Terminal) {
        std::thread::scope(|scope| {
            let finished = scope.spawn(|| terminal.finish());
            while !finished.is_finished() {
                self.look();
            }
        });
    }
}

#[derive(Clone, Default)]
struct Told {
    tasks: Arc<Mutex<Vec<String>>>,
    signals: Arc<Mutex<Vec<Signal>>>,
}

impl Told {
    fn callbacks(&self) -> Callbacks {
        let (tasks, signals) = (Arc::clone(&self.tasks), Arc::clone(&self.signals));
        Callbacks {
            task: Box::new(move |text| tasks.lock().unwrap().push(text.to_owned())),
            signal: Box::new(move |signal| signals.lock().unwrap().push(signal)),
        }
    }

    fn tasks(&self) -> Vec<String> {
        self.tasks.lock().unwrap().clone()
    }
}

/// Starts `script` on the streams; its stdin becomes its controlling terminal if it is one.
fn agent(streams: AgentStdio, script: &str) -> Child {
    let AgentStdio {
        stdin,
        stdout,
        stderr,
        ..
    } = streams;
    let on_terminal = rustix::termios::isatty(&stdin);
    let mut command = Command::new(if on_terminal { "setsid" } else { "sh" });
    if on_terminal {
        command.args(["--wait", "--ctty", "sh"]);
    }
    command
        .args(["-c", script])
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap()
}

fn on_screen(screen: &Screen, told: &Told, script: &str) -> (Terminal, Child) {
    let stdio = Stdio::duplicate(&screen.slave, &screen.slave, &screen.slave).unwrap();
    let (mut terminal, streams) = Terminal::open(stdio, told.callbacks()).unwrap();
    let child = agent(streams, script);
    terminal.start().unwrap();
    (terminal, child)
}

#[test]
fn the_agent_gets_a_terminal_of_its_own() {
    let mut screen = Screen::new(33, 101);
    let told = Told::default();
    let script = "test -t 0 && test -t 1 && test -t 2 && echo all terminals; stty size; exit 7";
    let (terminal, mut child) = on_screen(&screen, &told, script);
    assert!(screen.is_raw());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    screen.finish(terminal);
    assert!(!screen.is_raw(), "the terminal is restored");
    assert!(
        screen.text().contains("all terminals\r\n33 101\r\n"),
        "{:?}",
        screen.text()
    );
}

#[test]
fn typing_reaches_the_agent_and_is_the_task() {
    let mut screen = Screen::new(24, 80);
    let told = Told::default();
    let script = "read -r line; echo got $line; read -r line; echo then $line";
    let (terminal, mut child) = on_screen(&screen, &told, script);
    screen.type_in(b"fix the \x1b[200~tests\x1b[201~\r");
    screen.wait_for("got");
    assert_eq!(told.tasks(), ["fix the tests"]);
    screen.type_in(b"second\r");
    screen.wait_for("then second");
    child.wait().unwrap();
    screen.finish(terminal);
    assert_eq!(told.tasks(), ["fix the tests", "second"]);
}

#[test]
fn a_password_is_not_a_task() {
    let mut screen = Screen::new(24, 80);
    let told = Told::default();
    let script = "stty -echo; echo pass?; read -r p; stty echo; echo len ${#p}";
    let (terminal, mut child) = on_screen(&screen, &told, script);
    screen.wait_for("pass?");
    screen.type_in(b"hunter2\r");
    screen.wait_for("len 7");
    child.wait().unwrap();
    screen.finish(terminal);
    assert!(told.tasks().is_empty());
    assert!(!screen.text().contains("hunter2"));
}

#[test]
fn control_c_interrupts_and_a_lone_escape_arrives_at_once() {
    let mut screen = Screen::new(24, 80);
    let script = "trap 'echo interrupted' INT; echo ready; until read -r x; do :; done; \
                  stty raw -echo; echo one; dd bs=1 count=1 2>/dev/null | od -An -tx1";
    let (terminal, mut child) = on_screen(&screen, &Told::default(), script);
    screen.wait_for("ready");
    screen.type_in(b"\x03");
    screen.wait_for("interrupted");
    screen.type_in(b"x\r");
    screen.wait_for("one");
    screen.type_in(b"\x1b");
    screen.wait_for("1b");
    child.wait().unwrap();
    screen.finish(terminal);
}

#[test]
fn a_new_window_size_reaches_the_agent() {
    let mut screen = Screen::new(24, 80);
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let (terminal, mut child) = on_screen(&screen, &Told::default(), script);
    screen.wait_for("ready");
    screen.resize(50, 132);
    // The kernel signals the foreground job of a terminal; the test is not that.
    kill_process(getpid(), rustix::process::Signal::WINCH).unwrap();
    screen.wait_for("50 132");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(terminal);
    assert!(!screen.is_raw(), "dropping restores too");
}

#[test]
fn large_pastes_and_floods_do_not_deadlock() {
    let mut screen = Screen::new(24, 80);
    let told = Told::default();
    // Writes much and reads late, while much is typed.
    let script = "stty raw -echo; echo ready; sleep 0.3; \
                  head -c 300000 /dev/zero | tr '\\0' o; head -c 200000 | wc -c; echo END";
    let (terminal, mut child) = on_screen(&screen, &told, script);
    screen.wait_for("ready");
    screen.type_in(&vec![b'p'; 200_000]);
    screen.wait_for("END");
    child.wait().unwrap();
    screen.finish(terminal);
    let text = screen.text();
    assert!(text.contains("200000"), "{} bytes seen", text.len());
    assert_eq!(text.bytes().filter(|b| *b == b'o').count(), 300_000);
}

#[test]
fn all_output_is_there_when_the_agent_ends_at_once() {
    for _ in 0..10 {
        let mut screen = Screen::new(24, 80);
        let script = "head -c 60000 /dev/zero | tr '\\0' x; printf END";
        let (terminal, mut child) = on_screen(&screen, &Told::default(), script);
        while child.try_wait().unwrap().is_none() {
            screen.look();
        }
        screen.finish(terminal);
        let text = screen.text();
        assert_eq!(text.len(), 60_003);
        assert!(text.ends_with("END"));
    }
}

#[test]
fn a_left_over_process_does_not_keep_the_session_open() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let stdio = Stdio::duplicate(&file_with(b""), &write, &write).unwrap();
    drop(write);
    let (mut terminal, streams) = Terminal::open(stdio, Told::default().callbacks()).unwrap();
    let mut child = agent(streams, "sleep 5 & echo bye");
    terminal.start().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    terminal.finish();
    assert!(start.elapsed() < Duration::from_secs(2));
    let mut text = String::new();
    File::from(read).read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye\n");
}

#[test]
fn dangerous_output_is_removed_and_left_over_modes_are_undone() {
    let mut screen = Screen::new(24, 80);
    let script = r"printf 'a\033]52;c;aGk=\007b\033[21tc\033[?1049h\033[?25l\033[1md\005e'";
    let (terminal, mut child) = on_screen(&screen, &Told::default(), script);
    child.wait().unwrap();
    screen.finish(terminal);
    let expect = "abc\x1b[?1049h\x1b[?25l\x1b[1mde\x1b[?25h\x1b[?1049l\x1b[0m";
    assert_eq!(screen.text(), expect);
}

/// Runs `script` on files and returns what it wrote to stdout and stderr, and its status.
fn on_files(stdin: &File, script: &str) -> (Vec<u8>, Vec<u8>, Option<i32>) {
    let (out, err) = (file_with(b""), file_with(b""));
    let stdio = Stdio::duplicate(stdin, &out, &err).unwrap();
    let (mut terminal, streams) = Terminal::open(stdio, Told::default().callbacks()).unwrap();
    assert!(streams.controlling.is_none());
    let mut child = agent(streams, script);
    terminal.start().unwrap();
    let status = child.wait().unwrap().code();
    terminal.finish();
    (contents(out), contents(err), status)
}

fn file_with(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn pipes_pass_bytes_unchanged_and_never_a_file_of_the_host() {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let script = r"cat; printf '\033]52;c;?\007' >&2
                   test -p /dev/stdin && test -p /dev/stdout && test -p /dev/stderr";
    let (stdout, stderr, status) = on_files(&file_with(&bytes), script);
    assert_eq!(stdout, bytes);
    assert_eq!(stderr, b"\x1b]52;c;?\x07");
    assert_eq!(status, Some(0), "each stream is a pipe");
}

#[test]
fn what_the_agent_does_not_read_of_a_file_stays_for_the_next() {
    let mut file = file_with(b"first\nsecond\nthird\n");
    assert_eq!(on_files(&file, "dd bs=1 count=6 2>/dev/null").0, b"first\n");
    assert_eq!(file.stream_position().unwrap(), 6);
    assert_eq!(on_files(&file, "true").0, b"");
    assert_eq!(file.stream_position().unwrap(), 6);
    assert_eq!(on_files(&file, "cat").0, b"second\nthird\n");
    assert_eq!(file.stream_position().unwrap(), 19);
}

#[test]
fn two_streams_into_one_file_keep_their_order() {
    let log = file_with(b"");
    let stdio = Stdio::duplicate(&file_with(b""), &log, &log).unwrap();
    let (mut terminal, streams) = Terminal::open(stdio, Told::default().callbacks()).unwrap();
    let script = "i=0; while [ $i -lt 50 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let mut child = agent(streams, script);
    terminal.start().unwrap();
    child.wait().unwrap();
    terminal.finish();
    let expect: String = (0..50).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(String::from_utf8(contents(log)).unwrap(), expect);
}

#[test]
fn stdout_that_nobody_reads_fails_for_the_agent_as_usual() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    drop(read);
    let err = file_with(b"");
    let stdio = Stdio::duplicate(&file_with(b""), &write, &err).unwrap();
    drop(write);
    let (mut terminal, streams) = Terminal::open(stdio, Told::default().callbacks()).unwrap();
    let mut child = agent(streams, "yes 2>/dev/null; echo over >&2");
    terminal.start().unwrap();
    child.wait().unwrap();
    terminal.finish();
    assert_eq!(contents(err), b"over\n");
}

#[test]
fn input_from_a_file_with_output_on_a_terminal() {
    let mut screen = Screen::new(24, 80);
    let told = Told::default();
    let input = file_with(b"from a file\n");
    let stdio = Stdio::duplicate(&input, &screen.slave, &screen.slave).unwrap();
    let (mut terminal, streams) = Terminal::open(stdio, told.callbacks()).unwrap();
    assert!(streams.controlling.is_some());
    let script = "test -t 0 || echo no input terminal; test -t 1 && echo yes; cat";
    let mut child = agent(streams, script);
    terminal.start().unwrap();
    assert!(
        !screen.is_raw(),
        "nothing is typed, so the terminal keeps its mode"
    );
    child.wait().unwrap();
    screen.finish(terminal);
    assert_eq!(screen.text(), "no input terminal\r\nyes\r\nfrom a file\r\n");
    assert!(told.tasks().is_empty(), "a file is not the principal");
}

#[test]
fn a_terminal_that_goes_away_is_told_and_the_agent_does_not_block() {
    let screen = Screen::new(24, 80);
    let told = Told::default();
    let script = "trap '' HUP; sleep 0.3; head -c 300000 /dev/zero; exit 4";
    let (terminal, mut child) = on_screen(&screen, &told, script);
    drop(screen);
    assert_eq!(child.wait().unwrap().code(), Some(4));
    terminal.finish();
    assert_eq!(*told.signals.lock().unwrap(), [Signal::HangUp]);
}

#[test]
fn typing_with_output_into_a_file() {
    let mut screen = Screen::new(24, 80);
    let (told, out) = (Told::default(), file_with(b""));
    let stdio = Stdio::duplicate(&screen.slave, &out, &screen.slave).unwrap();
    assert!(!stdio.is_interactive());
    let (mut terminal, streams) = Terminal::open(stdio, told.callbacks()).unwrap();
    assert!(streams.controlling.is_none());
    let mut child = agent(streams, "test -t 0 || test -t 2 || cat; echo end >&2");
    terminal.start().unwrap();
    assert!(!screen.is_raw());
    screen.type_in(b"a line\n");
    screen.type_in(b"\x04");
    child.wait().unwrap();
    screen.finish(terminal);
    assert_eq!(contents(out), b"a line\n");
    assert_eq!(told.tasks(), ["a line"]);
    assert!(screen.text().ends_with("end\r\n"), "{:?}", screen.text());
}

#[test]
fn a_terminal_as_stderr_only_is_filtered() {
    let mut screen = Screen::new(24, 80);
    let stdio = Stdio::duplicate(&file_with(b""), &file_with(b""), &screen.slave).unwrap();
    let (mut terminal, streams) = Terminal::open(stdio, Told::default().callbacks()).unwrap();
    assert!(streams.controlling.is_none());
    let mut child = agent(
        streams,
        r"test -t 2 && exit 1; printf 'x\033]52;c;?\007y' >&2",
    );
    terminal.start().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    screen.finish(terminal);
    assert_eq!(screen.text(), "xy");
}
