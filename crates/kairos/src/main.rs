//! Kairos: runs an unmodified AI agent inside a boundary that its every effect has to cross.
//!
//! Modules in reading order:

/// The command line, one file a command.
mod cli;
/// Exit statuses and errors for people.
mod exit;
/// Where things are: home, state, workspace.
mod surroundings;
/// A session on disk: what is needed to go on with it later.
mod setup;
/// Puts a running session together; the only place that names concrete types.
mod wiring;
/// What is trusted and resolved inside: authority, resolver, environment.
mod inside;
/// The keys that an agent is given.
mod keys;
/// Who decides while the agent runs, and at its end.
mod deciding;
/// What the person who is asked may look at.
mod explaining;
/// What the agent is told, through its model conversation where there is one.
mod telling;
/// A session's conversation and its events as one trace.
mod steps;
/// The guards read along.
mod watching;
/// Reflections on disk.
mod memory;
/// Another process speaks to a running session.
mod control;
/// A session as its log tells it.
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The boundary's own processes are this program; they never return from here.
    sandbox::child_main_if_requested();
    close_to_inspection();
    cli::main()
}

/// This process has real credentials in its memory: nobody else's process may read it, and no dump of
/// it is written. What it starts begins anew.
fn close_to_inspection() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit};
    // One byte, not zero: for every limit but one the kernel hands a dump to a helper of the host.
    let core = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    // Where a system refuses one of them the other still holds.
    let _ = rustix::process::setrlimit(Resource::Core, core);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
