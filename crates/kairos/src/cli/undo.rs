//! `kairos undo`: brings back what a session's commits replaced.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::show::clean;
use crate::cli::{Which, print};
use crate::exit::{Failure, Outcome, Status};
use crate::setup::Setup;
use crate::wiring;

/// Bring back what a session replaced.
#[derive(Debug, Args)]
pub(crate) struct Undo {
    #[command(flatten)]
    which: Which,
    /// Only these files and directories [default: everything the session changed]
    paths: Vec<PathBuf>,
    /// Show what would be brought back, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

impl Undo {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = self.which.find()?;
        let setup = Setup::read(&dir)?;
        let below = places(&setup, &self.paths)?;
        let reopened = wiring::reopen(&dir)?.ok_or_else(|| {
            Failure::new(format!(
                "session {} is running; end it before you undo it",
                dir.id()
            ))
        })?;
        let trees = reopened.trees();
        for ((tree, path), said) in below.iter().zip(&self.paths) {
            if !trees.has_committed(tree, path) {
                return Err(no_change(&dir, said, "changed"));
            }
        }
        let would = trees.undo(&below, false);
        if would.is_empty() {
            let text = "There is nothing to undo: the session changed nothing here, or it is undone already.\n";
            return print(if self.json { "" } else { text });
        }
        if self.dry_run {
            return self.tell(&would, false);
        }
        if !self.yes {
            if self.json || !std::io::stdin().is_terminal() {
                return Err(Failure::new(
                    "nobody can be asked whether to do this; say `--yes` to do it, or `--dry-run` to see what it would be",
                ));
            }
            if !confirmed(&would)? {
                return Ok(Status::Negative);
            }
        }
        let undone = trees.undo(&below, true);
        let count = undone.iter().filter(|one| one.kept.is_none()).count();
        reopened
            .session
            .note("undone", [("paths".to_string(), count.to_string())].into());
        self.tell(&undone, true)
    }

    fn tell(&self, undone: &[files::Undone], done: bool) -> Outcome<Status> {
        let mut text = String::new();
        for one in undone {
            if self.json {
                text.push_str(&serde_json::to_string(one).map_err(Failure::new)?);
                text.push('\n');
            } else {
                text.push_str(&line(one, done));
            }
        }
        print(&text)?;
        Ok(if undone.iter().any(|one| one.kept.is_some()) {
            Status::Negative
        } else {
            Status::Success
        })
    }
}

fn line(one: &files::Undone, done: bool) -> String {
    let word = match (one.what, done) {
        ("remove", true) => "removed",
        ("remove", false) => "remove",
        ("attributes", true) => "attributes restored",
        ("attributes", false) => "restore attributes",
        (_, true) => "restored",
        (_, false) => "restore",
    };
    let path = if one.tree == "workspace" {
        one.path.clone()
    } else {
        format!("{}/{}", one.tree, one.path)
    };
    match &one.kept {
        None => format!("{word} {}\n", clean(&path)),
        Some(why) => format!("left as it is: {}: {}\n", clean(&path), clean(why)),
    }
}

fn confirmed(would: &[files::Undone]) -> Outcome<bool> {
    let mut text = String::new();
    for one in would {
        text.push_str(&line(one, false));
    }
    let _ = write!(text, "Do this? [y/N] ");
    print(&text)?;
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|e| Failure::new(format!("cannot read your answer: {e}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A path that a session has nothing to do with.
pub(crate) fn no_change(dir: &store::SessionDir, path: &Path, what: &str) -> Failure {
    Failure::new(format!(
        "`{}` is nothing that session {} has {what}; `kairos log {}` lists what it did",
        clean(&path.display().to_string()),
        dir.id(),
        dir.id()
    ))
}

/// The trees and paths below them that arguments name; see [`place`].
pub(crate) fn places(setup: &Setup, paths: &[PathBuf]) -> Outcome<Vec<(String, Vec<u8>)>> {
    paths.iter().map(|path| place(setup, path)).collect()
}

/// The tree and the path in it that a path on the command line means.
fn place(setup: &Setup, path: &Path) -> Outcome<(String, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt as _;
    let absolute = if path.is_absolute() {
        path.to_path_buf()
    } else {
        let here = std::env::current_dir()
            .map_err(|e| Failure::new(format!("cannot tell the current directory: {e}")))?;
        let here = if here.starts_with(&setup.workspace) {
            here
        } else {
            // From anywhere else a relative path is one of the workspace.
            setup.workspace.clone()
        };
        here.join(path)
    };
    let absolute = sandbox::tools::plain(&absolute);
    let found = setup.trees.iter().find_map(|(name, root)| {
        let below = absolute.strip_prefix(root).ok()?;
        Some((name.clone(), below.as_os_str().as_bytes().to_vec()))
    });
    found.ok_or_else(|| {
        Failure::new(format!(
            "`{}` lies in no directory that the session could change ({})",
            path.display(),
            setup
                .trees
                .iter()
                .map(|(_, root)| root.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        ))
    })
}
