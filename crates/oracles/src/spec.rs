//! Which oracle an operator asked for: `ask`, `deny`, `command:PROG ARGS`, `A then B`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use monitor::Oracle;

use crate::ask::{Ask, Explain};
use crate::chain::Chain;
use crate::command::Command;
use crate::deny::Deny;

/// An oracle by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OracleSpec {
    /// A person at the terminal.
    Ask,
    /// Refuse everything.
    Deny,
    /// A program and its arguments.
    Command {
        /// Its name or path.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// One after the other: what the first keeps goes to the next.
    Chain(Vec<OracleSpec>),
}

/// What oracles need from the program that asks them.
#[derive(Clone)]
pub struct Setting {
    /// How long an oracle that is no person may take.
    pub deadline: Duration,
    /// The policy in a few lines, for the view.
    pub policy: String,
    /// Directories to find programs in, as in `PATH`.
    pub path: Option<std::ffi::OsString>,
    /// What a person may look at besides the view.
    pub explain: Arc<dyn Explain>,
}

impl Setting {
    /// With this process's `PATH`, and nothing to look at besides the view.
    pub fn new(deadline: Duration, policy: String) -> Self {
        Self {
            deadline,
            policy,
            path: std::env::var_os("PATH"),
            explain: Arc::new(()),
        }
    }
}

const WORDS: &str = "write `ask`, `deny`, `command:PROGRAM` or `command:PROGRAM ARGUMENTS`; `A then B` asks B about \
                     what A keeps";

/// Reads the argument of `--oracle`.
///
/// # Errors
/// What is wrong and what to write instead.
pub fn parse(spec: &str) -> Result<OracleSpec, String> {
    let words = shlex::split(spec)
        .ok_or_else(|| format!("`{spec}` is no oracle: a quote is not closed"))?;
    let mut steps = Vec::new();
    for step in words.split(|word| word == "then") {
        steps.push(one(spec, step)?);
    }
    match steps.len() {
        1 => steps
            .pop()
            .ok_or_else(|| format!("`{spec}` is no oracle; {WORDS}")),
        _ => Ok(OracleSpec::Chain(steps)),
    }
}

fn one(spec: &str, words: &[String]) -> Result<OracleSpec, String> {
    let Some((name, arguments)) = words.split_first() else {
        return Err(if spec.trim().is_empty() {
            format!("the oracle has no name; {WORDS}")
        } else {
            format!("`{spec}` lacks an oracle beside `then`; {WORDS}")
        });
    };
    let plain = |oracle: OracleSpec| match arguments.first() {
        None => Ok(oracle),
        Some(word) => Err(format!(
            "`{name}` takes no arguments, and `{word}` follows it; {WORDS}"
        )),
    };
    match name.as_str() {
        "ask" => plain(OracleSpec::Ask),
        "deny" => plain(OracleSpec::Deny),
        _ => match name.split_once(':') {
            Some(("command", "")) => Err(format!("`command:` lacks its program; {WORDS}")),
            Some(("command", program)) => Ok(OracleSpec::Command {
                program: program.to_string(),
                arguments: arguments.to_vec(),
            }),
            _ => Err(format!("there is no oracle `{name}`; {WORDS}")),
        },
    }
}

impl fmt::Display for OracleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask => f.write_str("ask"),
            Self::Deny => f.write_str("deny"),
            Self::Command { program, arguments } => {
                write!(f, "command:{}", quoted(program))?;
                arguments
                    .iter()
                    .try_for_each(|argument| write!(f, " {}", quoted(argument)))
            }
            Self::Chain(steps) => {
                for (index, step) in steps.iter().enumerate() {
                    write!(f, "{}{step}", if index == 0 { "" } else { " then " })?;
                }
                Ok(())
            }
        }
    }
}

fn quoted(word: &str) -> String {
    // A bare `then` would end the oracle's words.
    match shlex::try_quote(word) {
        Ok(quoted) if word != "then" => quoted.into_owned(),
        _ => format!("'{}'", word.replace('\'', "")),
    }
}

/// Reads and makes an oracle that knows of nothing but its view and finds programs in `PATH`.
///
/// # Errors
/// As [`parse`] and [`build`].
pub fn oracle(spec: &str, deadline: Duration) -> Result<Arc<dyn Oracle>, String> {
    oracle_in(spec, &Setting::new(deadline, String::new()))
}

/// Reads and makes an oracle.
///
/// # Errors
/// As [`parse`] and [`build`].
pub fn oracle_in(spec: &str, setting: &Setting) -> Result<Arc<dyn Oracle>, String> {
    build(&parse(spec)?, setting).map(Arc::from)
}

/// Makes the oracle.
///
/// # Errors
/// When a program is not there or cannot be run.
pub fn build(spec: &OracleSpec, setting: &Setting) -> Result<Box<dyn Oracle>, String> {
    Ok(match spec {
        OracleSpec::Ask => Box::new(Ask::at_the_terminal(Arc::clone(&setting.explain))),
        OracleSpec::Deny => Box::new(Deny),
        OracleSpec::Command { program, arguments } => {
            let path = find(program, setting.path.as_deref())?;
            Box::new(Command::new(path, arguments, setting))
        }
        OracleSpec::Chain(steps) => {
            let steps: Result<Vec<_>, _> = steps.iter().map(|step| build(step, setting)).collect();
            Box::new(Chain::new(steps?))
        }
    })
}

/// A program by path, or by name in the search path.
fn find(program: &str, path: Option<&std::ffi::OsStr>) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = Path::new(program);
        return match std::fs::metadata(path) {
            Ok(kind) if kind.is_file() && is_executable(path) => Ok(path.to_path_buf()),
            Ok(kind) if kind.is_file() => Err(format!(
                "the oracle `{program}` cannot be executed; `chmod +x` it"
            )),
            Ok(_) => Err(format!(
                "the oracle `{program}` is not a file; name a program"
            )),
            Err(error) => Err(format!("the oracle `{program}` cannot be found: {error}")),
        };
    }
    let mut directories =
        std::env::split_paths(path.unwrap_or_default()).filter(|d| d.is_absolute());
    directories
        .find_map(|directory| {
            let candidate = directory.join(program);
            (candidate.is_file() && is_executable(&candidate)).then_some(candidate)
        })
        .ok_or_else(|| {
            format!(
                "the oracle `{program}` is not in PATH; write its path (`command:./{program}` for one in this directory)"
            )
        })
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
