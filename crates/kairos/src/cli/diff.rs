//! `kairos diff`: what the staged file changes of a session would change.

use clap::Args;

use crate::cli::{Which, print};
use crate::exit::{Failure, Outcome, Status};

/// Show staged file changes.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    which: Which,
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = self.which.find()?;
        let uppers: Vec<_> = crate::setup::Setup::read(&dir)?
            .trees
            .iter()
            .map(|(name, _)| dir.tree(name))
            .collect();
        let changes = files::staged_changes(&uppers).map_err(Failure::new)?;
        let mut text = String::new();
        for change in &changes {
            if self.json {
                text.push_str(&serde_json::to_string(change).map_err(Failure::new)?);
                text.push('\n');
            } else {
                text.push_str(&change.to_string());
            }
        }
        print(&text)
    }
}
