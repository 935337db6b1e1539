//! `kairos approve` and `kairos refuse`: verdicts from the command line, for a running session or
//! one that has ended.

use clap::Args;

use crate::cli::{Which, print, show};
use crate::control::{self, Ask};
use crate::exit::{Failure, Outcome, Status};
use crate::report::{Fate, Item, Report};
use crate::wiring;

/// Decide holds.
#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// Session id, or its unique beginning
    session: String,
    /// Holds, as `kairos review` names them, or `all`
    #[arg(required = true, value_name = "HOLD")]
    holds: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Decide {
    pub(crate) fn execute(self, release: bool) -> Outcome<Status> {
        let dir = Which {
            session: Some(self.session.clone()),
        }
        .find()?;
        let reason = self
            .reason
            .clone()
            .unwrap_or_else(|| "decided on the command line".to_string());
        let reopened = wiring::reopen(&dir)?;
        let before = Report::read(&dir)?;
        let holds = self.names(&before)?;
        let mut failed = Vec::new();
        for hold in &holds {
            // One that went with another meanwhile needs no verdict of its own.
            let result = match &reopened {
                Some(reopened) => match release.then(|| lacks(reopened, hold)).flatten() {
                    Some(why) => Err(why),
                    None => control::verdict(&reopened.session, hold, release, &reason),
                },
                None => {
                    let ask = Ask::Verdict {
                        hold: hold.clone(),
                        release,
                        reason: reason.clone(),
                    };
                    match control::ask(&dir, &ask)? {
                        Some(answer) => answer.error.map_or(Ok(()), Err),
                        None => Err(
                            "the session is running but does not answer; try again in a moment"
                                .to_string(),
                        ),
                    }
                }
            };
            if let Err(why) = result {
                failed.push((hold.clone(), why));
            }
        }
        let after = Report::read(&dir)?;
        let mut text = String::new();
        let mut status = Status::Success;
        let fate_before = |item: &Item| {
            let known = before.items.iter().find(|b| b.event == item.event);
            known.map(|known| known.fate)
        };
        // What was named, and what went along with it.
        let mut named = holds.clone();
        for item in &after.items {
            if let (Some(Fate::Held), Some(hold)) = (fate_before(item), &item.hold)
                && item.fate != Fate::Held
                && !named.contains(hold)
            {
                named.push(hold.clone());
            }
        }
        if named.is_empty() {
            text.push_str("Nothing is held.\n");
        }
        for hold in &named {
            let Some(item) = after
                .items
                .iter()
                .find(|item| item.hold.as_deref() == Some(hold))
            else {
                continue;
            };
            let already = match fate_before(item) {
                Some(Fate::Held) | None => "",
                Some(_) => "already ",
            };
            let outcome = match item.fate {
                Fate::Released => "released",
                Fate::Refused => "refused",
                Fate::Held if release && failed.iter().all(|(name, _)| name != hold) => {
                    "approved; it waits for what it depends on"
                }
                Fate::Held => "held",
                Fate::Failed => "failed",
                Fate::Unknown => "released; what came of it is not known",
                Fate::Withdrawn => "taken back by the agent",
            };
            if matches!(item.fate, Fate::Failed | Fate::Unknown) {
                status = Status::Negative;
            }
            let result = item
                .result
                .as_deref()
                .map(|r| format!(": {}", show::clean(r)))
                .unwrap_or_default();
            text.push_str(&format!(
                "{hold} {} {already}{outcome}{result}\n",
                show::clean(&item.line())
            ));
        }
        print(&text)?;
        let wanted = if release {
            Fate::Released
        } else {
            Fate::Refused
        };
        failed.retain(|(hold, _)| {
            after
                .items
                .iter()
                .all(|item| item.hold.as_deref() != Some(hold) || item.fate != wanted)
        });
        match failed.first() {
            Some((hold, why)) => Err(Failure {
                status: Status::Negative,
                message: if why.starts_with(hold.as_str()) {
                    why.clone()
                } else {
                    format!("{hold}: {why}")
                },
            }),
            None => Ok(status),
        }
    }

    fn names(&self, report: &Report) -> Outcome<Vec<String>> {
        if self.holds.iter().any(|hold| hold == "all") {
            return Ok(report
                .held()
                .iter()
                .filter_map(|item| item.hold.clone())
                .collect());
        }
        for hold in &self.holds {
            let known = report
                .items
                .iter()
                .any(|item| item.hold.as_deref() == Some(hold));
            if !known {
                return Err(Failure::new(format!(
                    "`{hold}` is no hold of session {}; `kairos review {}` lists what is held",
                    report.session, report.session
                )));
            }
        }
        let mut holds: Vec<String> = Vec::new();
        for hold in &self.holds {
            if !holds.contains(hold) {
                holds.push(hold.clone());
            }
        }
        Ok(holds)
    }
}

/// What keeps a hold from being released by this process.
fn lacks(reopened: &wiring::Reopened, name: &str) -> Option<String> {
    let hold: kernel::HoldId = name.parse().ok()?;
    let held = reopened.session.held();
    let held = held.iter().find(|held| held.hold == hold)?;
    reopened.lacks(held)
}
