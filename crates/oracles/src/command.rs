//! A program as oracle: the view on its standard input, its verdicts on standard output. Late,
//! failing or talking prose: everything is refused.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use monitor::{Judgement, Oracle, View};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::printable::{printable, shortened};
use crate::spec::Setting;
use crate::wire;

/// Longer answers are not read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// More of what it says on standard error is not passed on.
const COMPLAINT_BYTES_MAX: u64 = 8 << 10;

/// The oracle `command:PROG`.
#[derive(Clone, Debug)]
pub struct Command {
    program: PathBuf,
    arguments: Vec<String>,
    deadline: Duration,
    policy: String,
}

impl Command {
    /// An oracle that runs this program, found already.
    pub fn new(program: PathBuf, arguments: &[String], setting: &Setting) -> Self {
        Self {
            program,
            arguments: arguments.to_vec(),
            deadline: setting.deadline,
            policy: setting.policy.clone(),
        }
    }

    fn run(&self, view: &View) -> Result<(Judgement, Vec<String>), String> {
        let input = serde_json::to_vec(&wire::view(view, &self.policy))
            .map_err(|error| format!("the view could not be written: {error}"))?;
        let start = Instant::now();
        let end = start
            .checked_add(self.deadline)
            .unwrap_or(start + Duration::from_secs(365 * 86_400));
        let mut child = Running::start(&self.program, &self.arguments)?;
        let mut pipes = child.pipes(input)?;
        let answer = pipes.answer(end).ok_or_else(|| self.late())?;
        let status = child.wait(end).ok_or_else(|| self.late())?;
        let complaint = pipes.complaint();
        if !status.success() {
            return Err(match complaint {
                Some(complaint) => format!("it ended with {status}: {complaint}"),
                None => format!("it ended with {status}"),
            });
        }
        let answer = answer?;
        let (judgement, mut notes) = wire::verdicts(&answer, view);
        notes.extend(complaint.map(|complaint| format!("it says: {complaint}")));
        Ok((judgement, notes))
    }

    fn late(&self) -> String {
        format!(
            "it did not answer within {} s and was stopped",
            self.deadline.as_secs()
        )
    }
}

impl Oracle for Command {
    fn name(&self) -> String {
        let file = self.program.file_name().unwrap_or(self.program.as_os_str());
        format!("command:{}", printable(&file.to_string_lossy()))
    }

    fn judge(&self, view: &View) -> Judgement {
        match self.run(view) {
            Ok((judgement, notes)) => {
                for note in notes {
                    // There is no other way to the operator from here.
                    let line = format!("kairos: oracle {}: {}\n", self.name(), printable(&note));
                    let _ = std::io::stderr().lock().write_all(line.as_bytes());
                }
                judgement
            }
            Err(why) => Judgement::Failed(printable(&why)),
        }
    }
}

/// A child that is gone, with everything it started, when this is.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    fn start(program: &Path, arguments: &[String]) -> Result<Self, String> {
        let child = std::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("`{}` cannot be started: {error}", program.display()))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self { child, group })
    }

    fn pipes(&mut self, input: Vec<u8>) -> Result<Pipes, String> {
        let lost = || "its pipes were lost".to_string();
        let mut stdin = self.child.stdin.take().ok_or_else(lost)?;
        let stdout = self.child.stdout.take().ok_or_else(lost)?;
        let stderr = self.child.stderr.take().ok_or_else(lost)?;
        // A program that does not read its input is no error: it may know its answer.
        thread::spawn(move || stdin.write_all(&input));
        let (answered, answer) = mpsc::channel();
        let (complained, complaint) = mpsc::channel();
        thread::spawn(move || answered.send(read_text(stdout)));
        thread::spawn(move || complained.send(read_start(stderr)));
        Ok(Pipes { answer, complaint })
    }

    fn wait(&mut self, end: Instant) -> Option<std::process::ExitStatus> {
        // Looked at without being reaped, so that its group is still its own when it is killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Some(group) = self.group {
            match waitid(WaitId::Pid(group), options) {
                Ok(Some(_)) => break,
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
        self.end_group();
        self.child.wait().ok()
    }
}

impl Running {
    fn end_group(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_group();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Pipes {
    answer: mpsc::Receiver<Result<String, String>>,
    complaint: mpsc::Receiver<String>,
}

impl Pipes {
    fn answer(&mut self, end: Instant) -> Option<Result<String, String>> {
        self.answer
            .recv_timeout(end.saturating_duration_since(Instant::now()))
            .ok()
    }

    fn complaint(&mut self) -> Option<String> {
        let text = self
            .complaint
            .recv_timeout(Duration::from_millis(200))
            .ok()?;
        (!text.trim().is_empty()).then(|| shortened(text.trim(), 1000))
    }
}

fn read_text(pipe: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    pipe.take(ANSWER_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("its answer could not be read: {error}"))?;
    if bytes.len() as u64 > ANSWER_BYTES_MAX {
        return Err(format!(
            "its answer is longer than {} MiB",
            ANSWER_BYTES_MAX >> 20
        ));
    }
    String::from_utf8(bytes).map_err(|_| "its answer is not UTF-8 text".to_string())
}

/// The beginning of what a program complains about; the rest is read and dropped so that it is
/// not blocked.
fn read_start(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe
        .by_ref()
        .take(COMPLAINT_BYTES_MAX)
        .read_to_end(&mut bytes);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}
