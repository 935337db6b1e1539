//! `kairos tap`: stands between an editor and `codex app-server`. Both directions are recorded as
//! they are and pass as they are; with guards, a request for approval may be answered here, and the
//! turn brought back to its task.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use conversation::Item;
use conversation::app_server::{self, Approval, Direction, Message};
use guards::outcome::Moment;
use guards::{Any, Code, Decider, Guards, Outcome as Decision, Step, Trace, findings};
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome, Status, at};
use crate::steps;

/// Record a session of `codex app-server`.
#[derive(Debug, Args)]
pub(crate) struct Tap {
    /// Where the recording goes, one object a line [default: tap-TIME.jsonl in Kairos' state]
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Which guards may answer requests for approval: off, egress, all
    #[arg(long, value_name = "GUARDS", default_value = "off")]
    guards: Guards,
    /// The server and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Tap {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let path = self.place()?;
        let file = File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(at("create", &path))?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::new("there is no command to run"));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure {
                status: if error.kind() == std::io::ErrorKind::NotFound {
                    Status::NotFound
                } else {
                    Status::NotExecutable
                },
                message: format!("`{}` cannot be started: {error}", program.to_string_lossy()),
            })?;
        let lost = || Failure::new("the server's pipes were lost");
        let to_server = child.stdin.take().ok_or_else(lost)?;
        let from_server = child.stdout.take().ok_or_else(lost)?;
        let tap = Arc::new(Shared {
            guards: self.guards,
            record: Mutex::new(Record {
                file,
                start: Instant::now(),
                failed: false,
            }),
            to_server: Mutex::new(Some(to_server)),
            reading: Mutex::new(Reading::default()),
        });
        let client = Arc::clone(&tap);
        // Ends with the editor's end of the pipe, or with this process.
        std::thread::spawn(move || client.pass_to_server());
        tap.pass_to_client(BufReader::new(from_server));
        let status = child
            .wait()
            .map_err(|e| Failure::new(format!("the server was lost: {e}")))?;
        anstream::eprintln!("kairos: recorded in {}", path.display());
        let code = status.code().unwrap_or(125);
        Ok(Status::Agent(u8::try_from(code).unwrap_or(u8::MAX)))
    }

    fn place(&self) -> Outcome<PathBuf> {
        if let Some(path) = &self.record {
            return Ok(path.clone());
        }
        let root = crate::surroundings::Surroundings::read()?
            .place
            .root()
            .to_path_buf();
        let folder = root.join("taps");
        std::fs::create_dir_all(&folder).map_err(at("make", &folder))?;
        let time = crate::surroundings::now().replace([':', '.'], "-");
        Ok(folder.join(format!("tap-{time}-{}.jsonl", std::process::id())))
    }
}

struct Shared {
    guards: Guards,
    record: Mutex<Record>,
    to_server: Mutex<Option<std::process::ChildStdin>>,
    reading: Mutex<Reading>,
}

struct Record {
    file: File,
    start: Instant,
    failed: bool,
}

#[derive(Default)]
struct Reading {
    trace: Trace,
    decider: Decider,
    told: BTreeSet<(usize, Code)>,
    /// How many requests of ours there have been.
    asked: u64,
}

impl Shared {
    /// What the editor writes passes as it is, byte for byte.
    fn pass_to_server(&self) {
        let mut input = BufReader::new(std::io::stdin());
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            self.record(Direction::ToServer, &line);
            self.see(Direction::ToServer, &line);
            if self.write_to_server(&line).is_err() {
                break;
            }
        }
        // The server ends when its input does.
        drop(
            self.to_server
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// What the server writes passes as it is, but for requests that are answered here.
    fn pass_to_client(&self, mut output: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match output.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            self.record(Direction::ToClient, &line);
            if self.see(Direction::ToClient, &line) {
                continue;
            }
            let mut out = std::io::stdout().lock();
            if out.write_all(&line).and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    }

    /// Reads a message along; true when it was for us.
    fn see(&self, direction: Direction, line: &[u8]) -> bool {
        if self.guards == Guards::Off {
            return false;
        }
        let mut ours = false;
        for message in app_server::read(direction, line) {
            match message {
                Message::Item(item) => self.push(direction, item),
                Message::Approval(approval) => ours |= self.approve(&approval),
                Message::Answer { id } if direction == Direction::ToClient => {
                    ours |= id.starts_with("\"kairos-")
                }
                Message::Answer { .. }
                | Message::TurnStarted { .. }
                | Message::TurnEnded { .. }
                | Message::Other => {}
            }
        }
        ours
    }

    fn push(&self, direction: Direction, item: Item) {
        let step = match (direction, item) {
            (Direction::ToServer, Item::User(text)) => Some(Step::Task(text)),
            (_, item) => steps::step(&item),
        };
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        step.into_iter().for_each(|step| reading.trace.push(step));
    }

    /// Answers a request for approval when the guards decline it; every other one is the editor's.
    fn approve(&self, approval: &Approval) -> bool {
        let outcome = {
            let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            let mut fresh: Vec<Any> = findings(&reading.trace, self.guards);
            fresh.retain(|finding| reading.told.insert((finding.step(), finding.code())));
            let task = reading.trace.task().to_owned();
            reading.decider.decide(&task, &fresh, Moment::Pending)
        };
        match outcome {
            Decision::Accept => false,
            Decision::Decline(text) | Decision::Steer(text) => {
                self.say(&app_server::decline(approval));
                let id = self.id();
                self.say(&app_server::steer(
                    &id,
                    &approval.thread,
                    &approval.turn,
                    &text,
                ));
                true
            }
            Decision::Interrupt(_) => {
                self.say(&app_server::decline(approval));
                let id = self.id();
                self.say(&app_server::interrupt(
                    &id,
                    &approval.thread,
                    &approval.turn,
                ));
                true
            }
        }
    }

    fn id(&self) -> String {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.asked += 1;
        format!("kairos-{}", reading.asked)
    }

    fn say(&self, message: &str) {
        let line = format!("{message}\n");
        self.record(Direction::ToServer, line.as_bytes());
        // A server that is gone asks nothing more.
        let _ = self.write_to_server(line.as_bytes());
    }

    fn write_to_server(&self, line: &[u8]) -> std::io::Result<()> {
        let mut server = self
            .to_server
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &mut *server {
            Some(server) => server.write_all(line).and_then(|()| server.flush()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Recording never blocks or changes what passes; when it fails, that is said once.
    fn record(&self, direction: Direction, line: &[u8]) {
        let dir = match direction {
            Direction::ToServer => "client->server",
            Direction::ToClient => "server->client",
        };
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let t = record.start.elapsed().as_millis();
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        // As it was when it is JSON, otherwise as text.
        let whole = match serde_json::from_str::<&serde_json::value::RawValue>(text) {
            Ok(_) if !text.contains('\n') => {
                format!("{{\"t_ms\":{t},\"dir\":\"{dir}\",\"msg\":{text}}}\n")
            }
            _ => format!(
                "{}\n",
                json!({"t_ms": u64::try_from(t).unwrap_or(u64::MAX), "dir": dir, "msg": Value::from(text)})
            ),
        };
        if record.file.write_all(whole.as_bytes()).is_err() && !record.failed {
            record.failed = true;
            anstream::eprintln!(
                "kairos: the recording cannot be written any more; messages pass all the same"
            );
        }
    }
}
