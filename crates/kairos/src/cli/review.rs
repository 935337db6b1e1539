//! `kairos review`: what is held, with everything that is known of it; on a terminal it is decided
//! one group after the other.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::{Which, print, show};
use crate::exit::{Failure, Outcome, Status};
use crate::report::Report;
use crate::{surroundings, wiring};

/// Show and decide what is held.
#[derive(Debug, Args)]
pub(crate) struct Review {
    /// Session id, or its unique beginning [default: every session in which something is held]
    session: Option<String>,
    /// Print one object and decide nothing
    #[arg(long)]
    json: bool,
    /// Print the list and decide nothing
    #[arg(long)]
    list: bool,
}

impl Review {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dirs = match self.session.clone() {
            Some(id) => vec![Which { session: Some(id) }.find()?],
            None => with_holds()?,
        };
        let asks = !self.json
            && !self.list
            && std::io::stdin().is_terminal()
            && std::io::stdout().is_terminal();
        if dirs.is_empty() {
            let text = if self.json {
                "{\"sessions\":[]}\n"
            } else {
                "Nothing is held.\n"
            };
            return print(text);
        }
        let mut sessions = Vec::new();
        for dir in &dirs {
            // Opening one that was cut off turns what it left into holds.
            let reopened = wiring::reopen(dir)?;
            let report = Report::read(dir)?;
            if self.json {
                sessions.push(show::json(&report));
                continue;
            }
            let held = report.held();
            let state = if reopened.is_some() { "" } else { " (running)" };
            print(&format!(
                "session {}{state}: {} held\n  {}\n",
                report.session,
                held.len(),
                show::clean(&report.command.join(" "))
            ))?;
            if held.is_empty() {
                continue;
            }
            match reopened {
                Some(reopened) if asks => {
                    let held = reopened.session.held();
                    let lacking = held
                        .iter()
                        .find_map(|held| Some((held.hold, reopened.lacks(held)?)));
                    if let Some((hold, why)) = lacking {
                        return Err(Failure::new(format!("{hold}: {why}")));
                    }
                    let explaining = crate::explaining::Explaining::default();
                    explaining.of(&reopened.session);
                    // A person takes the time it takes.
                    let mut setting = oracles::Setting::new(Duration::MAX, String::new());
                    setting.explain = std::sync::Arc::new(explaining);
                    let oracle = oracles::oracle_in("ask", &setting).map_err(Failure::new)?;
                    let resolved = monitor::resolve::resolve(&reopened.session, &*oracle, None);
                    for note in resolved.notes {
                        anstream::eprintln!("{}: {note}", show::error("kairos"));
                    }
                    print(&show::summary(&Report::read(dir)?))?;
                }
                _ => {
                    print(&show::holds(&held))?;
                    print(&format!(
                        "\n`kairos approve {0} HOLD...` lets one happen, `kairos refuse {0} HOLD...` discards it.\n",
                        report.session
                    ))?;
                }
            }
        }
        if self.json {
            return print(&format!("{}\n", json!({ "sessions": sessions })));
        }
        Ok(Status::Success)
    }
}

/// Sessions in which something is held, or that were cut off.
fn with_holds() -> Outcome<Vec<store::SessionDir>> {
    let place = surroundings::Surroundings::read()?.place;
    let mut dirs = Vec::new();
    for id in place.sessions() {
        let dir = place.find(&id).map_err(Failure::new)?;
        // One that was cut off before it began holds nothing.
        if !dir.log().exists() {
            continue;
        }
        match store::log::read(&dir.log()) {
            Ok(log) => {
                let report = Report::of(&id, &log.entries);
                if !report.held().is_empty() || report.status.is_none() {
                    dirs.push(dir);
                }
            }
            Err(error) => anstream::eprintln!("{}: session {id}: {error}", show::error("kairos")),
        }
    }
    Ok(dirs)
}
