//! Mediates the terminal: pty, input, filter.
//!
//! The agent never holds a descriptor of the principal's terminal, nor of a file or pipe that
//! Kairos was given: what a descriptor allows besides reading and writing (`TIOCSTI`, `ftruncate`,
//! `fchmod`) would be a way round the monitor. Where stdout is a terminal the agent gets a
//! pseudo-terminal of its own, everywhere else a fresh pipe, and threads here carry the bytes.

pub mod stdio;
pub mod terminal;
pub mod filter;
pub mod input;
mod pty;
mod relay;
mod signals;
mod sys;
mod tty;

pub use stdio::{AgentStdio, Stdio};
pub use terminal::{Callbacks, Signal, TermError, Terminal};
