//! `kairos log`: a session's log as it is, or whether it is whole.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;
use store::Record;
use store::record::WrittenRelabel;

use crate::cli::{Which, print, show};
use crate::exit::{Failure, Outcome, Status};

/// Show or verify a log.
#[derive(Debug, Args)]
pub(crate) struct Log {
    #[command(flatten)]
    which: Which,
    /// Print one object a line
    #[arg(long)]
    json: bool,
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
            let line = if self.json {
                json!({ "seq": entry.seq, "at": entry.at, "body": entry.record }).to_string()
            } else {
                format!(
                    "{:>6} {} {}",
                    entry.seq,
                    entry.at,
                    show::clean(&words(&entry.record))
                )
            };
            let _ = writeln!(text, "{line}");
        }
        print(&text)
    }
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
        let ended = log
            .entries
            .iter()
            .any(|e| matches!(&e.record, Record::Note { what, .. } if what == "agent ended"));
        let running = crate::setup::Lock::is_taken(dir);
        if self.json {
            return print(&format!(
                "{}\n",
                json!({
                    "session": dir.id(), "whole": true, "records": log.entries.len(), "ended": ended,
                    "running": running, "torn_bytes": log.torn_bytes, "head": log.prev.hex(),
                })
            ));
        }
        let torn = match log.torn_bytes {
            0 => String::new(),
            bytes => format!("; {bytes} bytes of a last record that a crash cut off are left out"),
        };
        let end = match (ended, running) {
            (true, _) => "",
            (false, true) => "; the session is running",
            (false, false) => "; it has no end: the session was cut off, or the end of the log was",
        };
        print(&format!(
            "{}: {} records, whole and in order; head {}{torn}{end}\n",
            dir.id(),
            log.entries.len(),
            log.prev.hex()
        ))
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
        Record::Done { event, what, .. } => format!("e{event} failed: {what}"),
        Record::Told { event, how, .. } => format!("e{event} the agent was told ({how})"),
        Record::Note { what, facts } => {
            let facts: Vec<String> = facts.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("note: {what} {}", facts.join(" "))
        }
    }
}
