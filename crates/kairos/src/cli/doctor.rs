//! `kairos doctor`: whether this machine can confine an agent, and what to do where it cannot.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use crate::cli::print;
use crate::exit::{Outcome, Status};

/// Check the machine.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let checks = sandbox::doctor();
        let sound = checks
            .iter()
            .all(|check| check.status != sandbox::CheckStatus::Missing);
        let mut text = String::new();
        if self.json {
            let _ = writeln!(text, "{}", json!({ "sound": sound, "checks": checks }));
        } else {
            for check in &checks {
                let mark = match check.status {
                    sandbox::CheckStatus::Ok => "ok     ",
                    sandbox::CheckStatus::Warn => "weaker ",
                    sandbox::CheckStatus::Missing => "missing",
                };
                let _ = writeln!(text, "{mark}  {}: {}", check.name, check.found);
                for line in check.remedy.lines() {
                    let _ = writeln!(text, "         {line}");
                }
            }
            text.push_str(if sound {
                "\nThis machine can confine an agent.\n"
            } else {
                "\nThis machine cannot confine an agent yet; `kairos run` stops until it can.\n"
            });
        }
        print(&text)?;
        Ok(if sound {
            Status::Success
        } else {
            Status::Negative
        })
    }
}
