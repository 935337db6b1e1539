//! The command line, one file a command.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::exit::{Failure, Outcome, Status};

mod run;
mod review;
mod decide;
mod diff;
mod undo;
mod conflicts;
mod gc;
mod sessions;
mod log;
mod why;
mod init;
mod check;
mod doctor;
mod guard;
mod memory;
mod tap;
mod learn;
mod demo;
mod show;
mod labels;
mod eval;
mod stdio;
mod replay;

/// Runs an AI agent inside a boundary that its every effect on files, network and terminal has to
/// cross.
#[derive(Debug, Parser)]
#[command(name = "kairos", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an agent
    ///
    /// Exit status: the agent's own; 75 when it was 0 and effects are still held; 74 when it was 0 and
    /// a file could not be written, mostly because you changed it meanwhile; 125 when Kairos
    /// itself failed and nothing was run; 126 and 127 as in a shell.
    Run(run::Run),
    /// Show what is held, and decide it on a terminal
    Review(review::Review),
    /// Let held effects happen
    Approve(decide::Decide),
    /// Discard held effects
    Refuse(decide::Decide),
    /// Show what held file changes would change
    Diff(diff::Diff),
    /// Bring back what a session replaced, unless it was changed since
    ///
    /// Exit status: 0 when everything came back, 1 when something was left as it is or you said no.
    Undo(undo::Undo),
    /// Show files that you changed as well as the agent, and settle them
    ///
    /// Exit status: 0 when none is left, 1 when there are some.
    Conflicts(conflicts::Conflicts),
    /// Show what sessions keep on disk, and give back what nobody needs any more
    Gc(gc::Gc),
    /// List sessions
    Sessions(sessions::Sessions),
    /// Show a session's log, or verify that it is whole
    Log(log::Log),
    /// Explain why an effect was decided as it was
    Why(why::Why),
    /// Look for what the guards find in a session that is over
    Guard(guard::Guard),
    /// List, forget or export what is kept of findings
    Memory(memory::Memory),
    /// Record a session of `codex app-server`, and answer its requests for approval
    Tap(tap::Tap),
    /// Write a commented policy that fits this repository
    Init(init::Init),
    /// Work with policies
    Policy(check::Policy),
    /// Show what agents' writing left on a workspace's files, or take it away
    Labels(labels::Labels),
    /// Decide the tool calls of any harness, one JSON object a line (docs/decide-protocol.md)
    Decide(stdio::Stdio),
    /// Decide a session's events again, also by another policy
    ///
    /// Exit status: 1 when the session's own policy does not lead to what was recorded.
    Replay(replay::Replay),
    /// Measure what Kairos stops and what it costs (needs the Python package in `eval/`)
    Eval(eval::Eval),
    /// Check that this machine can confine an agent
    Doctor(doctor::Doctor),
    /// Show in half a minute what Kairos does, without keys or network
    Demo(demo::Demo),
    /// The stand-in agent of the demo
    #[command(name = "__demo-agent", hide = true)]
    DemoAgent,
}

/// A session by id.
#[derive(Debug, Args)]
struct Which {
    /// Session id, or its unique beginning; the latest one when left out
    session: Option<String>,
}

/// Parses the command line and runs the command.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(
                error.kind(),
                clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion
            );
            let _ = error.print();
            // A mistake on the command line runs nothing, as every other failure of Kairos.
            return ExitCode::from(if asked { 0 } else { Status::Failed.code() });
        }
    };
    let result = match cli.command {
        Command::Run(run) => run.execute(),
        Command::Review(review) => review.execute(),
        Command::Approve(decide) => decide.execute(true),
        Command::Refuse(decide) => decide.execute(false),
        Command::Diff(diff) => diff.execute(),
        Command::Undo(undo) => undo.execute(),
        Command::Conflicts(conflicts) => conflicts.execute(),
        Command::Gc(gc) => gc.execute(),
        Command::Sessions(sessions) => sessions.execute(),
        Command::Log(log) => log.execute(),
        Command::Why(why) => why.execute(),
        Command::Guard(guard) => guard.execute(),
        Command::Memory(memory) => memory.execute(),
        Command::Tap(tap) => tap.execute(),
        Command::Init(init) => init.execute(),
        Command::Policy(policy) => policy.execute(),
        Command::Labels(labels) => labels.execute(),
        Command::Eval(eval) => eval.execute(),
        Command::Decide(stdio) => stdio.execute(),
        Command::Replay(replay) => replay.execute(),
        Command::Doctor(doctor) => doctor.execute(),
        Command::Demo(demo) => demo.execute(),
        Command::DemoAgent => demo::agent(),
    };
    match result {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            anstream::eprintln!("{}: {}", show::error("kairos"), failure.message);
            ExitCode::from(failure.status.code())
        }
    }
}

/// Words of a command as text, for people and logs.
fn words(command: &[OsString]) -> Vec<String> {
    command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

impl Which {
    /// The session's directory.
    fn find(&self) -> Outcome<store::SessionDir> {
        let place = crate::surroundings::Surroundings::read()?.place;
        match &self.session {
            Some(id) => place.find(id).map_err(Failure::new),
            None => {
                let latest = place.sessions().pop().ok_or_else(|| {
                    Failure::new("there is no session yet; `kairos run -- AGENT` starts one")
                })?;
                place.find(&latest).map_err(Failure::new)
            }
        }
    }
}

/// Writes to standard output; a reader that has gone away is no failure.
fn print(text: &str) -> Outcome<Status> {
    use std::io::Write as _;
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(Status::Success),
    }
}
