//! Which oracle an operator asked for: `ask`, `deny`, `rules`, `model:…`, `command:PROG ARGS`,
//! `A then B` (also `A,B`), `2 of A + B + C`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use monitor::Oracle;

use crate::ask::{Ask, Explain};
use crate::chain::Chain;
use crate::command::Command;
use crate::deny::Deny;
use crate::model::{Endpoint, Model};
use crate::quorum::Quorum;
use crate::rules::Rules;

/// An oracle by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OracleSpec {
    /// A person at the terminal.
    Ask,
    /// Refuse everything.
    Deny,
    /// An operator's rules; the built-in one without a file.
    Rules(Option<PathBuf>),
    /// A language model.
    Model(Endpoint),
    /// So many of these have to agree.
    Quorum(usize, Vec<OracleSpec>),
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

impl OracleSpec {
    /// Whether a person is asked at some point.
    pub fn asks_a_person(&self) -> bool {
        match self {
            Self::Ask => true,
            Self::Chain(steps) | Self::Quorum(_, steps) => steps.iter().any(Self::asks_a_person),
            Self::Deny | Self::Rules(_) | Self::Model(_) | Self::Command { .. } => false,
        }
    }
}

impl OracleSpec {
    /// The same without the persons in it; what they would decide stays open. `None` when nobody else
    /// is asked, or when persons count in a quorum.
    pub fn without_person(&self) -> Option<Self> {
        match self {
            Self::Ask => None,
            Self::Chain(steps) => {
                // What comes after a person is asked about what the person keeps.
                let before = steps.iter().take_while(|step| !step.asks_a_person());
                let before: Vec<Self> = before.cloned().collect();
                match &before[..] {
                    [] => None,
                    [one] => Some(one.clone()),
                    _ => Some(Self::Chain(before)),
                }
            }
            Self::Quorum(_, members) if members.iter().any(Self::asks_a_person) => None,
            other => Some(other.clone()),
        }
    }
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

const WORDS: &str = "write `ask`, `deny`, `rules`, `rules:FILE`, `model:openai/NAME`, `model:anthropic/NAME`, \
                     `command:PROGRAM` or `command:PROGRAM ARGUMENTS`; `A then B` (or `A,B`) asks B about what A keeps; \
                     `2 of A + B + C` releases what two release";

/// Reads the argument of `--oracle`.
///
/// # Errors
/// What is wrong and what to write instead.
pub fn parse(spec: &str) -> Result<OracleSpec, String> {
    let words = shlex::split(spec)
        .ok_or_else(|| format!("`{spec}` is no oracle: a quote is not closed"))?;
    let mut steps = Vec::new();
    for step in words.split(|word| word == "then") {
        // `rules,ask`; a program's own words are left alone.
        if let Some((first, rest)) = step.split_first()
            && first.contains(',')
            && !first.starts_with("command:")
        {
            let names: Vec<&str> = first.split(',').collect();
            let last = names.len().saturating_sub(1);
            for (index, name) in names.into_iter().enumerate() {
                let mut words = vec![name.to_string()];
                if name.is_empty() {
                    words.clear();
                }
                if index == last {
                    words.extend_from_slice(rest);
                }
                steps.push(step_of(spec, &words)?);
            }
            continue;
        }
        steps.push(step_of(spec, step)?);
    }
    match steps.len() {
        1 => steps
            .pop()
            .ok_or_else(|| format!("`{spec}` is no oracle; {WORDS}")),
        _ => Ok(OracleSpec::Chain(steps)),
    }
}

/// One oracle, or so many of several.
fn step_of(spec: &str, words: &[String]) -> Result<OracleSpec, String> {
    let [needed, of, members @ ..] = words else {
        return one(spec, words);
    };
    if of != "of" {
        return one(spec, words);
    }
    let members: Result<Vec<OracleSpec>, String> = members
        .split(|word| word == "+")
        .map(|member| one(spec, member))
        .collect();
    let members = members?;
    match needed.parse::<usize>() {
        Ok(needed) if (1..=members.len()).contains(&needed) => {
            Ok(OracleSpec::Quorum(needed, members))
        }
        _ => Err(format!(
            "`{needed} of` {} oracles makes no sense; {WORDS}",
            members.len()
        )),
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
        "rules" => plain(OracleSpec::Rules(None)),
        _ => match name.split_once(':') {
            Some(("rules", file)) if !file.is_empty() => {
                plain(OracleSpec::Rules(Some(file.into())))
            }
            Some(("model", model)) => Endpoint::parse(model, arguments).map(OracleSpec::Model),
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
            Self::Rules(None) => f.write_str("rules"),
            Self::Rules(Some(file)) => {
                write!(f, "{}", quoted(&format!("rules:{}", file.display())))
            }
            Self::Model(endpoint) => write!(f, "{endpoint}"),
            Self::Quorum(needed, members) => {
                write!(f, "{needed} of ")?;
                for (index, member) in members.iter().enumerate() {
                    write!(f, "{}{member}", if index == 0 { "" } else { " + " })?;
                }
                Ok(())
            }
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
        Ok(quoted) if !matches!(word, "then" | "+" | "of") => quoted.into_owned(),
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
        OracleSpec::Rules(None) => Box::new(Rules::default()),
        OracleSpec::Rules(Some(file)) => Box::new(Rules::read(file)?),
        OracleSpec::Model(endpoint) => Box::new(Model::new(endpoint.clone(), setting)?),
        OracleSpec::Quorum(needed, members) => {
            let members: Result<Vec<_>, _> = members.iter().map(|m| build(m, setting)).collect();
            Box::new(Quorum::new(*needed, members?))
        }
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
