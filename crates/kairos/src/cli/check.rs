//! `kairos policy`: check a policy, say what is in force, approve a workspace's.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::print;
use crate::exit::{Failure, Outcome, Status};
use crate::surroundings::{Surroundings, workspace};
use crate::wiring;

/// Work with policies.
#[derive(Debug, Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a policy and say what it allows
    Check(Check),
    /// Put this workspace's kairos.toml in force, as it is now
    Trust(Workspace),
    /// Take that back
    Distrust(Workspace),
    /// Propose what would have released what was approved in these sessions
    Learn(crate::cli::learn::Learn),
    /// Print the built-in policy
    Default,
}

#[derive(Debug, Args)]
struct Check {
    /// Policy file [default: the one in force]
    file: Option<PathBuf>,
    #[command(flatten)]
    place: Workspace,
    /// Print one object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Workspace {
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl Policy {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let surroundings = Surroundings::read()?;
        match self.command {
            Command::Check(check) => check.execute(&surroundings),
            Command::Trust(place) => {
                let places = wiring::places(&surroundings, &workspace(place.workspace.as_deref())?);
                policy::trust(&places).map_err(Failure::policy)?;
                print("The policy of this workspace is in force as it is now.\n")
            }
            Command::Distrust(place) => {
                let places = wiring::places(&surroundings, &workspace(place.workspace.as_deref())?);
                policy::distrust(&places)
                    .map_err(|e| Failure::new(format!("cannot take the approval back: {e}")))?;
                print("The policy of this workspace is not in force any more.\n")
            }
            Command::Learn(learn) => learn.execute(),
            Command::Default => print(policy::DEFAULT),
        }
    }
}

impl Check {
    fn execute(self, surroundings: &Surroundings) -> Outcome<Status> {
        let workspace = workspace(self.place.workspace.as_deref())?;
        let places = wiring::places(surroundings, &workspace);
        let found = policy::discover(&places, self.file.as_deref()).map_err(Failure::policy)?;
        if let Some(default) = &found.loaded.oracle.default {
            oracles::parse(default).map_err(|why| {
                Failure::new(format!(
                    "the policy cannot be used: `[oracle] default`: {why}"
                ))
            })?;
        }
        let report = found.loaded.report();
        if self.json {
            let text = serde_json::to_string(&report).map_err(Failure::new)?;
            return print(&format!("{text}\n"));
        }
        if let Some(note) = &found.note {
            anstream::eprintln!("kairos: {note}");
        }
        print(&report.to_string())
    }
}
