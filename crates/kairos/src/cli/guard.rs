//! `kairos guard`: what the guards find in a session that is over, or in a recording of a tap.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use conversation::app_server::{self, Direction, Message};
use guards::outcome::Moment;
use guards::{Any, Decider, Guards, Step, Trace, findings};
use serde_json::{Value, json};

use crate::cli::{Which, print, show};
use crate::exit::{Failure, Outcome, Status, at};
use crate::setup::Setup;
use crate::steps;

/// Look for what the guards find, without an agent.
#[derive(Debug, Args)]
pub(crate) struct Guard {
    /// Session id or its unique beginning, a session's `log.jsonl`, or a recording of `kairos tap`
    #[arg(value_name = "LOG")]
    log: Option<String>,
    /// Which guards: egress, all
    #[arg(long, value_name = "GUARDS", default_value = "all")]
    guards: Guards,
    /// The task, for a recording that does not have it
    #[arg(long, value_name = "TEXT")]
    task: Option<String>,
    /// Print one object
    #[arg(long)]
    json: bool,
}

impl Guard {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let trace = match &self.log {
            Some(path) if Path::new(path).is_file() => self.file(Path::new(path))?,
            log => self.session(
                &Which {
                    session: log.clone(),
                }
                .find()?,
            )?,
        };
        let found = findings(&trace, self.guards);
        let outcomes = decided(&trace, &found);
        let lines: Vec<Line> = found
            .iter()
            .zip(outcomes)
            .map(|(finding, outcome)| Line { finding, outcome })
            .collect();
        let text = if self.json {
            let all: Vec<Value> = lines.iter().map(|line| line.json(&trace)).collect();
            format!(
                "{}\n",
                json!({"steps": trace.steps().len(), "findings": all})
            )
        } else {
            table(&trace, &lines)
        };
        print(&text)?;
        Ok(if found.is_empty() {
            Status::Success
        } else {
            Status::Negative
        })
    }

    fn session(&self, dir: &store::SessionDir) -> Outcome<Trace> {
        let setup = Setup::read(dir)?;
        let loaded = policy::recorded(&setup.policy).map_err(|errors| {
            Failure::new(format!(
                "the policy of the session cannot be read back\n{}",
                errors.coloured()
            ))
        })?;
        let blobs = store::Blobs::open_dir(&dir.blobs()).map_err(at("open", &dir.blobs()))?;
        let entries = store::log::read(&dir.log()).map_err(Failure::new)?.entries;
        Ok(steps::of_log(
            &entries,
            &blobs,
            &loaded.kernel,
            steps::settings(&loaded.kernel),
        ))
    }

    fn file(&self, path: &Path) -> Outcome<Trace> {
        if path.file_name().is_some_and(|name| name == "log.jsonl")
            && path.with_file_name("setup.json").is_file()
        {
            let folder: PathBuf = path.parent().map(Path::to_path_buf).unwrap_or_default();
            return self.session(&store::SessionDir::at(folder));
        }
        let text = std::fs::read(path).map_err(at("read", path))?;
        let mut trace = Trace::new(guards::Settings::default());
        if let Some(task) = &self.task {
            trace.push(Step::Task(task.clone()));
        }
        let mut read = 0;
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let Some((direction, message)) = recorded(line) else {
                continue;
            };
            read += 1;
            for message in app_server::read(direction, message.as_bytes()) {
                if let Message::Item(item) = message {
                    // What the editor sends is what the principal wrote.
                    let step = match (direction, item) {
                        (Direction::ToServer, conversation::Item::User(text)) => {
                            Some(Step::Task(text))
                        }
                        (_, item) => steps::step(&item),
                    };
                    step.into_iter().for_each(|step| trace.push(step));
                }
            }
        }
        if read == 0 {
            return Err(Failure::new(format!(
                "`{}` is neither a session's log nor a recording: no line of it has `dir` and `msg`; \
                 name a session, its `log.jsonl`, or what `kairos tap` wrote",
                path.display()
            )));
        }
        Ok(trace)
    }
}

/// A line of a recording: which way, and the message as JSON.
fn recorded(line: &[u8]) -> Option<(Direction, String)> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let direction = match value.get("dir")?.as_str()? {
        "client->server" => Direction::ToServer,
        "server->client" => Direction::ToClient,
        _ => return None,
    };
    let message = value.get("msg")?;
    Some((
        direction,
        match message {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
    ))
}

struct Line<'a> {
    finding: &'a Any,
    outcome: &'static str,
}

/// What would have been done, one action after the other.
fn decided(trace: &Trace, found: &[Any]) -> Vec<&'static str> {
    let mut decider = Decider::new();
    let mut outcomes = Vec::new();
    let mut rest = found;
    while let Some(first) = rest.first() {
        let n = rest
            .iter()
            .take_while(|finding| finding.step() == first.step())
            .count();
        let (here, after) = rest.split_at(n);
        rest = after;
        let moment = match trace.steps().get(first.step()) {
            Some(Step::Effect { decision, .. }) if decision == "release" => Moment::Past,
            Some(Step::Call { .. } | Step::Effect { .. }) => Moment::Pending,
            _ => Moment::Past,
        };
        let outcome = decider.decide(trace.task(), here, moment).name();
        outcomes.extend(std::iter::repeat_n(outcome, n));
    }
    outcomes
}

impl Line<'_> {
    fn json(&self, trace: &Trace) -> Value {
        let finding = self.finding;
        json!({
            "step": finding.step(),
            "guard": finding.code().guard(),
            "code": finding.code().name(),
            "may": finding.power(),
            "outcome": self.outcome,
            "facts": finding.facts(),
            "what": what(trace, finding.step()),
        })
    }
}

fn table(trace: &Trace, lines: &[Line<'_>]) -> String {
    if lines.is_empty() {
        return format!("{} steps, nothing found.\n", trace.steps().len());
    }
    let mut text = String::new();
    for line in lines {
        let facts: Vec<String> = line
            .finding
            .facts()
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let _ = writeln!(
            text,
            "step {:<4} {:<9} {:<18} {}",
            line.finding.step(),
            line.outcome,
            line.finding.code().name(),
            show::clean(&facts.join(", "))
        );
        let _ = writeln!(
            text,
            "          | {}",
            show::clean(&what(trace, line.finding.step()))
        );
    }
    let _ = writeln!(
        text,
        "{} steps, {} findings.",
        trace.steps().len(),
        lines.len()
    );
    text
}

/// A step in a line.
fn what(trace: &Trace, step: usize) -> String {
    const CHARACTERS_MAX: usize = 160;
    let text = match trace.steps().get(step) {
        Some(Step::Call {
            name,
            commands,
            paths,
            ..
        }) => match commands.first().or_else(|| paths.first()) {
            Some(first) => format!("{name}: {first}"),
            None => name.clone(),
        },
        Some(Step::Effect {
            operation,
            object,
            decision,
            ..
        }) => format!("{operation} {object}: {decision}"),
        Some(
            Step::Narration(text) | Step::Reasoning(text) | Step::User(text) | Step::Task(text),
        ) => text.clone(),
        Some(Step::Result { text, .. }) => text.clone(),
        Some(Step::Read { source, .. }) => format!("read {source}"),
        None => String::new(),
    };
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(CHARACTERS_MAX) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line.to_string(),
    }
}
