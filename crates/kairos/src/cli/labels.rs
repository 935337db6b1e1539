//! `kairos labels`: what sticks to the places of a workspace from earlier sessions.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use kernel::{Label, Level, Place, Relabel};
use serde_json::json;
use store::WorkspaceLabels;

use crate::cli::print;
use crate::cli::show::clean;
use crate::exit::{Failure, Outcome, Status};
use crate::surroundings::{Surroundings, identity, workspace};

/// Show what agents' writing left on the files of a workspace, or take it away.
#[derive(Debug, Args)]
pub(crate) struct Labels {
    #[command(subcommand)]
    command: Option<Command>,
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR", global = true)]
    workspace: Option<PathBuf>,
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Trust a file or directory again as the policy says, because you have read it
    Clear {
        /// Path below the workspace; `.` for all of it
        path: String,
    },
}

/// The tree that the workspace is.
const TREE: &str = "workspace";

impl Labels {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let root = Surroundings::read()?.place.root().to_path_buf();
        let workspace = workspace(self.workspace.as_deref())?;
        let labels = WorkspaceLabels::open(&root, &identity(&workspace)?).map_err(Failure::new)?;
        match self.command {
            None => print(&listed(&labels, self.json)),
            Some(Command::Clear { path }) => clear(labels, &path),
        }
    }
}

fn listed(labels: &WorkspaceLabels, json: bool) -> String {
    let mut text = String::new();
    for (place, label) in labels.known() {
        let line = if json {
            let kinds: Vec<&str> = kinds(*label);
            json!({
                "tree": place.tree, "path": place.path, "trusted": kinds, "level": label.level.name(),
            })
            .to_string()
        } else {
            format!("{}  {}", clean(&shown(place)), words(*label))
        };
        let _ = writeln!(text, "{line}");
    }
    if text.is_empty() && !json {
        text.push_str("Nothing sticks to this workspace.\n");
    }
    text
}

fn shown(place: &Place) -> String {
    if place.tree == TREE {
        place.path.clone()
    } else {
        format!("{}/{}", place.tree, place.path)
    }
}

fn words(label: Label) -> String {
    let kinds = kinds(label);
    let trusted = if kinds.len() == kernel::Kind::ALL.len() {
        "made from trusted content".to_string()
    } else if kinds.is_empty() {
        "made from content that is trusted for nothing".to_string()
    } else {
        format!(
            "made from content that is trusted for {} only",
            kinds.join(", ")
        )
    };
    match label.level {
        Level::Public => trusted,
        level => format!("{trusted}, carries {level} content"),
    }
}

fn kinds(label: Label) -> Vec<&'static str> {
    kernel::Kind::ALL
        .into_iter()
        .filter(|kind| label.trusted.contains(*kind))
        .map(kernel::Kind::name)
        .collect()
}

fn clear(mut labels: WorkspaceLabels, path: &str) -> Outcome<Status> {
    let wanted = path.trim_start_matches("./").trim_matches('/');
    let gone: Vec<Place> = labels
        .known()
        .iter()
        .map(|(place, _)| place)
        .filter(|place| {
            let below = place.path.strip_prefix(wanted);
            place.tree == TREE
                && (matches!(wanted, "" | ".")
                    || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        })
        .cloned()
        .collect();
    if gone.is_empty() {
        return Err(Failure {
            status: Status::Negative,
            message: format!("nothing sticks to `{path}`; `kairos labels` lists what does"),
        });
    }
    for place in &gone {
        labels
            .append(&Relabel::Clear(place.clone()))
            .map_err(Failure::new)?;
    }
    labels.sync().map_err(Failure::new)?;
    print(&match gone.len() {
        1 => "1 place is trusted again as the policy says.\n".to_string(),
        several => format!("{several} places are trusted again as the policy says.\n"),
    })
}
