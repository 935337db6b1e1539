//! A child process with its output in files and a time limit, in a process group of its own that ends with it.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running child. Dropped, it and its group are killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    shown: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// What a child left behind.
#[derive(Debug, Clone)]
pub struct Finished {
    /// As a shell tells it: 128 + the signal when a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts `command` with its output in `logs`, named by `name`.
    pub fn start(mut command: Command, logs: &Path, name: &str) -> Self {
        let unique = format!("{name}-{}", crate::place::canary().get(6..14).unwrap());
        let (stdout, stderr) = (
            logs.join(format!("{unique}.out")),
            logs.join(format!("{unique}.err")),
        );
        let shown = format!("{command:?}");
        if !shown.is_empty() && command.get_current_dir().is_none() {
            command.current_dir("/");
        }
        command
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .process_group(0);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        Self {
            child,
            shown,
            stdout,
            stderr,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn so_far(&self) -> (String, String) {
        (text(&self.stdout), text(&self.stderr))
    }

    /// Waits until it ends; longer than `limit` is a failure of the test.
    pub fn finish(mut self, limit: Duration) -> Finished {
        let status = self.wait(limit).unwrap_or_else(|| {
            let (stdout, stderr) = self.so_far();
            panic!(
                "{} still runs after {limit:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
                self.shown
            )
        });
        let (stdout, stderr) = self.so_far();
        Finished {
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout,
            stderr,
        }
    }

    /// Waits at most so long.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if start.elapsed() > limit {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kill -9, this process only, not its group.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn signal(&self, signal: &str) {
        signal_process(&self.child.id().to_string(), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal_process(&format!("-{}", self.child.id()), "KILL");
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to a process (`123`) or a group (`-123`).
pub fn signal_process(target: &str, signal: &str) {
    // The shell's own: a small system has no `kill` program.
    let _ = Command::new("/bin/sh")
        .args(["-c", "kill -s \"$0\" -- \"$1\"", signal, target])
        .stderr(Stdio::null())
        .status();
}

/// Waits until `true`; says whether it came to that.
pub fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes of this machine whose command line holds `word`, the caller's own excepted.
pub fn processes_with(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in Path::new("/proc").read_dir().unwrap().flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if id != std::process::id() && String::from_utf8_lossy(&line).contains(word) {
            found.push(id);
        }
    }
    found
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
