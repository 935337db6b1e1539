//! `kairos log`: a session's log as it is, or whether it is whole.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use store::Record;
use store::record::WrittenRelabel;

use crate::cli::{Which, print, show};
use crate::exit::{Failure, Outcome, Status, at};

/// Show or verify a log.
#[derive(Debug, Args)]
pub(crate) struct Log {
    #[command(flatten)]
    which: Which,
    /// Print one object a line
    #[arg(long)]
    json: bool,
    /// Go on with what is written, until the session ends; the chain is not checked meanwhile
    #[arg(long, conflicts_with = "verify")]
    follow: bool,
    /// Only check that the log is whole and in order
    #[arg(long)]
    verify: bool,
}

impl Log {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = self.which.find()?;
        if !dir.log().exists() {
            let told = "the session was cut off before it began; nothing had happened";
            return print(&if self.json {
                format!(
                    "{}\n",
                    json!({ "session": dir.id(), "whole": true, "records": 0, "note": told })
                )
            } else {
                format!("{}: {told}\n", dir.id())
            });
        }
        if self.follow {
            return self.follow(&dir);
        }
        let log = match store::log::read(&dir.log()) {
            Ok(log) => log,
            Err(error) if self.verify => {
                if self.json {
                    print(&format!(
                        "{}\n",
                        json!({ "session": dir.id(), "whole": false, "error": error.to_string() })
                    ))?;
                }
                return Err(Failure {
                    status: Status::Negative,
                    message: error.to_string(),
                });
            }
            Err(error) => return Err(Failure::new(error)),
        };
        let mut text = String::new();
        if self.verify {
            return self.verified(&dir, &log);
        }
        for entry in &log.entries {
            let _ = writeln!(text, "{}", self.line(entry.seq, &entry.at, &entry.record));
        }
        print(&text)
    }

    fn line(&self, seq: u64, at: &str, record: &Record) -> String {
        if self.json {
            json!({ "seq": seq, "at": at, "body": record }).to_string()
        } else {
            format!("{seq:>6} {at} {}", show::clean(&words(record)))
        }
    }

    /// What is there, and then each record as it comes.
    fn follow(&self, dir: &store::SessionDir) -> Outcome<Status> {
        let file = std::fs::File::open(dir.log()).map_err(at("open", &dir.log()))?;
        let mut reader = BufReader::new(file);
        let mut line = String::new();
        loop {
            // Asked before reading, so that the last records of a session that ends are read.
            let running = crate::setup::Lock::is_taken(dir);
            let mut text = String::new();
            while reader
                .read_line(&mut line)
                .map_err(at("read", &dir.log()))?
                > 0
            {
                if !line.ends_with('\n') {
                    // The rest of it is not there yet.
                    break;
                }
                let entry: Followed = serde_json::from_str(&line).map_err(|e| {
                    Failure::new(format!(
                        "`{}` has a line that cannot be read: {e}",
                        dir.log().display()
                    ))
                })?;
                let _ = writeln!(text, "{}", self.line(entry.seq, &entry.at, &entry.body));
                line.clear();
            }
            print(&text)?;
            if !running {
                return Ok(Status::Success);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A line of the log, without its place in the chain.
#[derive(Deserialize)]
struct Followed {
    seq: u64,
    at: String,
    body: Record,
}

impl Log {
    /// The chain holds; whether it also has its beginning and its end.
    fn verified(&self, dir: &store::SessionDir, log: &store::log::Reading) -> Outcome<Status> {
        let begins = matches!(
            log.entries.first().map(|e| &e.record),
            Some(Record::Header { .. })
        );
        if !begins {
            let message = format!(
                "`{}` has no beginning: its records are gone",
                dir.log().display()
            );
            if self.json {
                print(&format!(
                    "{}\n",
                    json!({ "session": dir.id(), "whole": false, "error": message })
                ))?;
            }
            return Err(Failure {
                status: Status::Negative,
                message,
            });
        }
        let ending = Ending::of(dir, log);
        if self.json {
            return print(&format!(
                "{}\n",
                json!({
                    "session": dir.id(), "whole": true, "records": log.entries.len(), "ended": ending.ended,
                    "running": ending.running, "torn_bytes": log.torn_bytes, "head": log.prev.hex(),
                })
            ));
        }
        let rest: String = ending
            .words()
            .iter()
            .map(|words| format!("; {words}"))
            .collect();
        print(&format!(
            "{}: {} records, whole and in order; head {}{rest}\n",
            dir.id(),
            log.entries.len(),
            log.prev.hex()
        ))
    }
}

/// How a log ends.
pub(crate) struct Ending {
    pub(crate) ended: bool,
    pub(crate) running: bool,
    torn_bytes: u64,
}

impl Ending {
    pub(crate) fn of(dir: &store::SessionDir, log: &store::log::Reading) -> Self {
        // Of an agent that ran here; of a harness that closed its session.
        let is_end = |record: &Record| match record {
            Record::Note { what, .. } => matches!(what.as_str(), "agent ended" | "session closed"),
            _ => false,
        };
        Self {
            ended: log.entries.iter().any(|entry| is_end(&entry.record)),
            running: crate::setup::Lock::is_taken(dir),
            torn_bytes: log.torn_bytes,
        }
    }

    /// What there is to say about it.
    pub(crate) fn words(&self) -> Vec<String> {
        let torn = (self.torn_bytes > 0).then(|| {
            let bytes = self.torn_bytes;
            format!("{bytes} bytes of a last record that a crash cut off are left out")
        });
        let end = match (self.ended, self.running) {
            (true, _) => None,
            (false, true) => Some("the session is running"),
            (false, false) => {
                Some("it has no end: the session was cut off, or the end of the log was")
            }
        };
        torn.into_iter().chain(end.map(String::from)).collect()
    }
}

/// A record in one line for people.
fn words(record: &Record) -> String {
    match record {
        Record::Header {
            command, version, ..
        } => format!("start: {} (kairos {version})", command.join(" ")),
        Record::Incoming {
            event,
            source,
            layer: Some(hold),
            ..
        } => format!(
            "e{event} in: {} as h{hold} has it",
            kernel::Source::from(source)
        ),
        Record::Incoming {
            event,
            source,
            bytes,
            ..
        } => {
            format!(
                "e{event} in: {} ({bytes} bytes)",
                kernel::Source::from(source)
            )
        }
        Record::Proposed {
            event,
            effect,
            decision,
            why,
            ..
        } => {
            let object = effect
                .read()
                .map(|e| e.object.to_string())
                .unwrap_or_default();
            format!(
                "e{event} out: {} {object}: {decision} ({})",
                effect.operation,
                why.join("; ")
            )
        }
        Record::Verdict {
            hold,
            verdict,
            oracle,
            reason,
            ..
        } => {
            format!("{hold} {verdict} by {oracle}: {reason}")
        }
        Record::Withdrawn { hold, .. } => format!("{hold} taken back by the agent"),
        Record::Expired { hold, .. } => format!("{hold} could not wait"),
        Record::Overdue { hold, .. } => format!("{hold} was held for too long"),
        Record::Policy { epoch, .. } => format!("the policy was replaced ({epoch})"),
        Record::Labels { labels } => format!("labels from before: {} places", labels.len()),
        Record::Relabelled { event, relabel } => match relabel {
            WrittenRelabel::Stick(label) => {
                format!(
                    "e{event} label of {}/{}: {}",
                    label.tree, label.path, label.level
                )
            }
            WrittenRelabel::Clear(tree, path) => format!("e{event} no label: {tree}/{path}"),
        },
        Record::Spent { event, why, .. } => format!("e{event} permit spent ({why})"),
        Record::Aborted { event, why } => format!("e{event} discarded: {why}"),
        Record::Done {
            event,
            ok: true,
            what,
        } => format!("e{event} done: {what}"),
        Record::Done { event, what, .. } if what.starts_with(store::record::UNKNOWN) => {
            format!("e{event} {what}")
        }
        Record::Done { event, what, .. } => format!("e{event} failed: {what}"),
        Record::Told { event, how, .. } => format!("e{event} the agent was told ({how})"),
        Record::Note { what, facts } => {
            let facts: Vec<String> = facts.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("note: {what} {}", facts.join(" "))
        }
    }
}
