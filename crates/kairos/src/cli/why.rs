//! `kairos why`: why an effect was decided as it was.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use crate::cli::show::clean;
use crate::cli::{Which, print};
use crate::exit::{Failure, Outcome, Status};
use crate::report::{Fate, Item, Report};

/// Explain a decision.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Session id, or its unique beginning
    session: String,
    /// A hold (`h7`), an event (`e7`), a path, or a URL or a part of one
    what: String,
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

impl Why {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = Which {
            session: Some(self.session.clone()),
        }
        .find()?;
        let report = Report::read(&dir)?;
        let found = meant(&report.items, &self.what);
        if found.is_empty() {
            return Err(Failure {
                status: Status::Negative,
                message: format!(
                    "no effect of session {} is called `{}`; `kairos log {}` lists them all",
                    dir.id(),
                    self.what,
                    dir.id()
                ),
            });
        }
        let mut text = String::new();
        for item in found {
            if self.json {
                let _ = writeln!(text, "{}", json!(item));
            } else {
                explain(&mut text, item);
            }
        }
        print(&text)
    }
}

/// What goes by that name; by a part of a name only if nothing goes by the whole.
fn meant<'a>(items: &'a [Item], what: &str) -> Vec<&'a Item> {
    let what = what.trim_start_matches("./");
    let named: Vec<&Item> = items
        .iter()
        .filter(|item| {
            item.hold.as_deref() == Some(what)
                || format!("e{}", item.event) == what
                || item.object == what
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    items
        .iter()
        .filter(|item| item.object.contains(what))
        .collect()
}

fn explain(text: &mut String, item: &Item) {
    let _ = writeln!(text, "{}", clean(&item.line()));
    let fate = match item.fate {
        Fate::Released => "released",
        Fate::Held => "held: nothing of it has happened",
        Fate::Refused => "refused: nothing of it happened",
        Fate::Failed => "released, but it could not be carried out",
        Fate::Unknown => "released; what came of it is not known",
        Fate::Withdrawn => "taken back by the agent before it was decided",
    };
    let name = item
        .hold
        .as_deref()
        .map(|hold| format!(" ({hold})"))
        .unwrap_or_default();
    let _ = writeln!(text, "  {fate}{name}");
    if let Some(by) = &item.by {
        let _ = writeln!(text, "  by {}", clean(by));
    }
    for line in &item.details {
        let _ = writeln!(text, "  {}", clean(line));
    }
    for reason in &item.reasons {
        let _ = writeln!(text, "  because {}", clean(reason));
    }
    for origin in &item.origins {
        let value = if origin.value.is_empty() {
            format!("{} content", origin.field)
        } else {
            format!("{} `{}`", origin.field, origin.value)
        };
        let _ = writeln!(
            text,
            "  {} was met in {} line {}",
            clean(&value),
            clean(&origin.source),
            origin.line
        );
    }
    if let Some(result) = &item.result {
        let _ = writeln!(text, "  {}", clean(result));
    }
}
