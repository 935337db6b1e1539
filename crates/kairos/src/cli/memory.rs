//! `kairos memory`: what is kept of findings, for the owner to see, take along and forget.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::{print, show};
use crate::exit::{Failure, Outcome, Status};
use crate::memory;
use crate::surroundings::Surroundings;

/// What is kept of findings.
#[derive(Debug, Args)]
pub(crate) struct Memory {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what is kept
    List(Named),
    /// Forget what is about a host or a file, or everything
    Forget(Forget),
    /// Print all of it as one object
    Export(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// Only memories whose name begins like this (`codex`)
    name: Option<String>,
}

#[derive(Debug, Args)]
struct Forget {
    /// The host or file, as `kairos memory list` names it
    #[arg(required_unless_present = "all")]
    value: Option<String>,
    /// Everything
    #[arg(long, conflicts_with = "value")]
    all: bool,
    /// Only in memories whose name begins like this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

impl Memory {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let root = Surroundings::read()?.place.root().join("memory");
        match self.command {
            Command::List(which) => list(&files(&root, which.name.as_deref())),
            Command::Export(which) => export(&files(&root, which.name.as_deref())),
            Command::Forget(forget) => {
                let mut n = 0;
                for (_, path) in files(&root, forget.only.as_deref()) {
                    n += memory::change(&path, |memory| memory.forget(forget.value.as_deref()))
                        .map_err(Failure::new)?;
                }
                match (n, forget.value) {
                    (0, Some(value)) => Err(Failure {
                        status: Status::Negative,
                        message: format!(
                            "nothing is kept about `{value}`; `kairos memory list` tells what is"
                        ),
                    }),
                    (n, _) => print(&format!("{n} forgotten.\n")),
                }
            }
        }
    }
}

fn files(root: &std::path::Path, name: Option<&str>) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_string(), path)))
        .filter(|(stem, _)| name.is_none_or(|name| stem.starts_with(name)))
        .collect();
    found.sort();
    found
}

fn list(files: &[(String, PathBuf)]) -> Outcome<Status> {
    let mut text = String::new();
    for (name, path) in files {
        let memory = memory::read(path).map_err(Failure::new)?;
        if memory.reflections.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{name}");
        for reflection in &memory.reflections {
            let _ = writeln!(
                text,
                "  {:<18} {:<40} {:<16} {}",
                reflection.kind.name(),
                show::clean(&reflection.value),
                reflection
                    .channel
                    .as_deref()
                    .map(show::clean)
                    .unwrap_or_default(),
                if reflection.is_recurring() {
                    "recurring"
                } else {
                    "seen once"
                }
            );
        }
        for family in memory.watch().families() {
            let _ = writeln!(
                text,
                "  {:<18} {:<40} {:<16} derived",
                "family",
                show::clean(family),
                ""
            );
        }
    }
    if text.is_empty() {
        text.push_str("Nothing is kept.\n");
    }
    print(&text)
}

fn export(files: &[(String, PathBuf)]) -> Outcome<Status> {
    let mut all = serde_json::Map::new();
    for (name, path) in files {
        let memory = memory::read(path).map_err(Failure::new)?;
        all.insert(
            name.clone(),
            serde_json::to_value(memory).map_err(Failure::new)?,
        );
    }
    print(&format!("{}\n", json!({ "memories": all })))
}
