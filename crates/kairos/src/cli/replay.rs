//! `kairos replay`: a session's events decided again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use store::replay::{Redecided, Replay as Replayed, Ruling};
use store::{Blobs, SessionDir};

use crate::cli::log::Ending;
use crate::cli::show::clean;
use crate::cli::{Which, print};
use crate::exit::{Failure, Outcome, Status, at};
use crate::setup::Setup;
use crate::surroundings::Surroundings;

/// Decide a log again.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Session id or its unique beginning, or a session's directory or log file
    log: String,
    /// Show what this policy would have decided as well
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Show every decision, not only those that differ
    #[arg(long)]
    all: bool,
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = self.dir()?;
        let setup = Setup::read(&dir).map_err(|failure| Failure {
            message: format!(
                "{}\nA log is decided again by the policy beside it: give the session's directory, with its `setup.json`",
                failure.message
            ),
            ..failure
        })?;
        let mut own = policy::recorded(&setup.policy).map_err(Failure::policy)?;
        own.kernel.unbound = setup.mode.unbound();
        let home = Surroundings::read()?.home;
        let other = self
            .policy
            .as_deref()
            .map(|path| policy::load(Some(path), &setup.workspace, &home))
            .transpose()
            .map_err(Failure::policy)?;
        let log = store::log::read(&dir.log()).map_err(Failure::new)?;
        if log.entries.is_empty() {
            return Err(Failure::new(format!(
                "there is nothing in `{}` to decide again: it has no whole record",
                dir.log().display()
            )));
        }
        let ending = Ending::of(&dir, &log).words();
        let blobs = Blobs::open_dir(&dir.blobs()).map_err(at("open", &dir.blobs()))?;
        let other = other.as_ref();
        let replayed = store::replay(
            &log.entries,
            &blobs,
            (&own.kernel, &own.rules),
            other.map(|policy| (&policy.kernel, &policy.rules as &dyn kernel::policy::Rules)),
        )
        .map_err(Failure::new)?;
        let shown: Vec<&Redecided> = replayed
            .decisions
            .iter()
            .filter(|item| self.all || !item.holds() || item.differs())
            .collect();
        print(&if self.json {
            as_json(&shown, &replayed.mismatches, &ending)
        } else {
            self.as_text(&dir, &replayed, &shown, &ending)
        })?;
        Ok(
            if replayed.decisions.iter().all(Redecided::holds) && replayed.mismatches.is_empty() {
                Status::Success
            } else {
                Status::Negative
            },
        )
    }

    fn dir(&self) -> Outcome<SessionDir> {
        let path = Path::new(&self.log);
        if path.is_dir() {
            return Ok(SessionDir::at(path));
        }
        match path.parent() {
            Some(parent) if path.is_file() => Ok(SessionDir::at(parent)),
            _ => Which {
                session: Some(self.log.clone()),
            }
            .find(),
        }
    }

    fn as_text(
        &self,
        dir: &SessionDir,
        replayed: &Replayed,
        shown: &[&Redecided],
        ending: &[String],
    ) -> String {
        let mut text = String::new();
        for item in shown {
            let _ = writeln!(text, "e{} {}", item.event, clean(&object(item)));
            line(&mut text, "recorded", &item.recorded);
            if !item.holds() {
                line(&mut text, "now", &item.again);
            }
            if let Some(other) = &item.other {
                line(&mut text, "other", other);
            }
        }
        let total = replayed.decisions.len();
        let changed = replayed
            .decisions
            .iter()
            .filter(|item| !item.holds())
            .count();
        let _ = match changed {
            0 => writeln!(
                text,
                "{}: {total} decisions, each derived again as it was recorded.",
                dir.id()
            ),
            changed => writeln!(
                text,
                "{}: {changed} of {total} decisions are not what the session's own policy leads to; the log or \
                 what it refers to was changed, or another version wrote it.",
                dir.id()
            ),
        };
        if let Some(path) = &self.policy {
            let differ: Vec<&Redecided> = replayed
                .decisions
                .iter()
                .filter(|item| item.differs())
                .collect();
            let _ = writeln!(
                text,
                "By `{}`: {} of {total} would be decided otherwise.",
                path.display(),
                differ.len()
            );
            for (from, to, count) in counted(&differ) {
                let _ = writeln!(text, "  {count} {from} -> {to}");
            }
        }
        for mismatch in &replayed.mismatches {
            let _ = writeln!(text, "{}", clean(mismatch));
        }
        for words in ending {
            let _ = writeln!(text, "Of the log: {words}.");
        }
        if replayed.missing > 0 {
            let _ = writeln!(
                text,
                "{} contents are not kept with the log; what would derive from them is deferred here.",
                replayed.missing
            );
        }
        text
    }
}

fn line(text: &mut String, name: &str, ruling: &Ruling) {
    let _ = writeln!(
        text,
        "  {name:<9} {:<8} {}",
        ruling.decision,
        clean(&ruling.why.join("; "))
    );
}

fn object(item: &Redecided) -> String {
    item.effect
        .read()
        .map(|effect| kernel::manifest::describe(&effect))
        .unwrap_or_default()
}

/// How often each change of decision occurs.
fn counted(differ: &[&Redecided]) -> Vec<(String, String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for item in differ {
        if let Some(other) = &item.other {
            let key = (item.again.decision.clone(), other.decision.clone());
            *counts.entry(key).or_insert(0) += 1;
        }
    }
    counts
        .into_iter()
        .map(|((from, to), count)| (from, to, count))
        .collect()
}

fn as_json(shown: &[&Redecided], mismatches: &[String], ending: &[String]) -> String {
    let ruling = |ruling: &Ruling| json!({ "decision": ruling.decision, "why": ruling.why, "manifest": ruling.manifest });
    let mut text = String::new();
    for item in shown {
        let line = json!({
            "event": item.event,
            "effect": object(item),
            "recorded": ruling(&item.recorded),
            "again": ruling(&item.again),
            "other": item.other.as_ref().map(ruling),
            "holds": item.holds(),
            "differs": item.differs(),
        });
        let _ = writeln!(text, "{line}");
    }
    for mismatch in mismatches {
        let _ = writeln!(text, "{}", json!({ "mismatch": mismatch }));
    }
    for words in ending {
        let _ = writeln!(text, "{}", json!({ "log": words }));
    }
    text
}
