//! `kairos run`: an agent inside the boundary, from its first instruction to the summary.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::cli::{show, words};
use crate::exit::{Outcome, Status};
use crate::report::Fate;
use crate::setup::RunMode;
use crate::watching::Watch;
use crate::wiring::{self, Order, Published};

/// Run an agent.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Directory that the agent works in [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Policy file [default: one that `kairos init` wrote, else the built-in policy]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The task in your words; what it names may steer effects [default: the command line]
    #[arg(long, value_name = "TEXT")]
    task: Option<String>,
    /// Who decides what the policy defers: ask, deny, rules, model:openai/NAME, command:PROG, or
    /// several (docs/oracle-protocol.md)
    /// [default: ask on a terminal, otherwise everything is kept for review]
    #[arg(long, value_name = "ORACLE")]
    oracle: Option<String>,
    /// Lead a port of this host's loopback to a service that the agent starts; may be repeated
    #[arg(long, value_name = "PORT[:INSIDE]")]
    publish: Vec<Published>,
    /// Whether decisions bind
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    mode: RunMode,
    /// What the guards may do: off, observe (they look, record and learn), egress (two of them
    /// decline and interrupt), all (and the others warn and steer)
    #[arg(long, value_name = "GUARDS", default_value = "observe")]
    guards: Watch,
    /// Print one summary object as the last line of standard output
    #[arg(long)]
    json: bool,
    /// The agent and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    /// Runs it.
    pub(crate) fn execute(self) -> Outcome<Status> {
        let command = words(&self.command);
        let ended = wiring::run(Order {
            workspace: self.workspace,
            policy: self.policy,
            task: self.task.unwrap_or_else(|| command.join(" ")),
            oracle: self.oracle,
            mode: self.mode,
            guards: self.guards,
            command: self.command,
            expose: Vec::new(),
            publish: self.publish,
        })?;
        if self.json {
            // On a line of its own, also after an agent that left its last line open.
            anstream::println!("\n{}", show::json(&ended.report));
        } else {
            let text = show::summary(&ended.report) + &show::next(&ended.report);
            if !text.is_empty() {
                anstream::eprint!("{text}");
            }
        }
        for note in &ended.notes {
            anstream::eprintln!("{}: {note}", show::error("kairos"));
        }
        let held = !ended.report.with(&[Fate::Held]).is_empty();
        let failed = ended
            .report
            .with(&[Fate::Failed])
            .iter()
            .any(|item| item.channel == "file");
        if let Ok(surroundings) = crate::surroundings::Surroundings::read() {
            crate::cli::gc::bound(&surroundings.place);
        }
        Ok(match ended.code {
            0 if held => Status::Held,
            0 if failed => Status::Conflict,
            code => Status::Agent(u8::try_from(code).unwrap_or(u8::MAX)),
        })
    }
}
