//! `kairos sessions`: what there is.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use crate::cli::print;
use crate::cli::show::clean;
use crate::exit::{Failure, Outcome, Status};
use crate::report::{Fate, Report};
use crate::setup::Lock;
use crate::surroundings::Surroundings;

/// List sessions.
#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

impl Sessions {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let place = Surroundings::read()?.place;
        let mut text = String::new();
        for id in place.sessions() {
            let dir = place.find(&id).map_err(Failure::new)?;
            let running = Lock::is_taken(&dir);
            let report = store::log::read(&dir.log()).map(|log| Report::of(&id, &log.entries));
            let line = match report {
                Ok(report) if self.json => json!({
                    "session": id, "started": report.started, "command": report.command,
                    "running": running, "status": report.status,
                    "held": report.with(&[Fate::Held]).len(),
                    "released": report.with(&[Fate::Released]).len(),
                    "refused": report.with(&[Fate::Refused]).len(),
                })
                .to_string(),
                Ok(report) => {
                    let state = match (running, report.status) {
                        (true, _) => "running".to_string(),
                        (false, Some(status)) => format!("ended {status}"),
                        (false, None) => "cut off".to_string(),
                    };
                    let held = report.with(&[Fate::Held]).len();
                    format!(
                        "{id}  {state:<10} {held:>4} held  {}",
                        clean(&report.command.join(" "))
                    )
                }
                Err(error) if self.json => {
                    json!({ "session": id, "error": error.to_string() }).to_string()
                }
                Err(error) => format!("{id}  unreadable: {error}"),
            };
            let _ = writeln!(text, "{line}");
        }
        if text.is_empty() && !self.json {
            text.push_str("There is no session yet; `kairos run -- AGENT` starts one.\n");
        }
        print(&text)
    }
}
