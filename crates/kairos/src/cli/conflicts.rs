//! `kairos conflicts`: where the owner changed a file that the agent changed too, both versions and
//! what they make together; the owner chooses.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::show::clean;
use crate::cli::undo::{no_change, places};
use crate::cli::{Which, print};
use crate::exit::{Failure, Outcome, Status};
use crate::setup::Setup;
use crate::wiring;

/// Show and settle conflicts.
#[derive(Debug, Args)]
pub(crate) struct Conflicts {
    #[command(flatten)]
    which: Which,
    /// Only these files [default: all]
    paths: Vec<PathBuf>,
    /// What is to be in place from now on; without it nothing is changed
    #[arg(long, value_name = "VERSION")]
    take: Option<Take>,
    /// Print one object a line
    #[arg(long)]
    json: bool,
}

/// A version of a file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Take {
    /// Both changes put together, where they touch different lines
    Merged,
    /// The agent's; yours is kept for `kairos undo`
    Agent,
    /// Yours; the agent's is discarded
    Mine,
}

impl Conflicts {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = self.which.find()?;
        let setup = Setup::read(&dir)?;
        let wanted = places(&setup, &self.paths)?;
        let reopened = wiring::reopen(&dir)?.ok_or_else(|| {
            Failure::new(format!(
                "session {} is running; its conflicts are settled when it has ended",
                dir.id()
            ))
        })?;
        let trees = reopened.trees();
        let all = trees.conflicts();
        for (at, said) in wanted.iter().zip(&self.paths) {
            if !at.1.is_empty() && !all.iter().any(|one| lies_at(one, at)) {
                return Err(no_change(&dir, said, "a conflict about"));
            }
        }
        let found: Vec<_> = all
            .into_iter()
            .filter(|one| wanted.is_empty() || wanted.iter().any(|at| lies_at(one, at)))
            .collect();
        if found.is_empty() && !self.json {
            return print("There is no conflict.\n");
        }
        let mut text = String::new();
        let mut open = false;
        for one in &found {
            let result = self.take.map(|take| trees.resolve(one, choice(take)));
            open |= !matches!(result, Some(Ok(())));
            if let Some(Ok(())) = result {
                reopened.session.note(
                    "conflict settled",
                    [
                        ("path".to_string(), one.path.clone()),
                        (
                            "taken".to_string(),
                            format!("{:?}", choice(self.take.unwrap_or(Take::Mine))).to_lowercase(),
                        ),
                    ]
                    .into(),
                );
            }
            text.push_str(&if self.json {
                let mut object = serde_json::to_value(one).map_err(Failure::new)?;
                if let (Some(result), Some(fields)) = (&result, object.as_object_mut()) {
                    let told = result.as_ref().err().map_or("settled", String::as_str);
                    fields.insert("result".to_string(), told.into());
                }
                format!("{object}\n")
            } else {
                told(one, result.as_ref())
            });
        }
        if open && !self.json {
            text.push_str(&format!(
                "\nYour versions are in place. `kairos conflicts {} PATH --take merged|agent|mine` settles one.\n",
                dir.id()
            ));
        }
        print(&text)?;
        Ok(if open {
            Status::Negative
        } else {
            Status::Success
        })
    }
}

/// Whether a conflict is about a path or something below it.
fn lies_at(one: &files::Conflict, (tree, path): &(String, Vec<u8>)) -> bool {
    *tree == one.tree
        && files::path::bytes(&one.path).is_some_and(|it| files::path::lies_at(&it, path))
}

fn choice(take: Take) -> files::Choice {
    match take {
        Take::Merged => files::Choice::Merged,
        Take::Agent => files::Choice::Agent,
        Take::Mine => files::Choice::Owner,
    }
}

fn told(one: &files::Conflict, result: Option<&Result<(), String>>) -> String {
    let path = if one.tree == "workspace" {
        one.path.clone()
    } else {
        format!("{}/{}", one.tree, one.path)
    };
    let path = clean(&path);
    match result {
        Some(Ok(())) => return format!("settled {path}\n"),
        Some(Err(why)) => return format!("left as it is: {path}: {}\n", clean(why)),
        None => {}
    }
    let merge = match &one.merge {
        files::Merge::Clean { .. } => "both changes fit together (`--take merged`)".to_string(),
        files::Merge::Marked { .. } => "both touch the same lines".to_string(),
        files::Merge::No { why } => (*why).to_string(),
    };
    format!(
        "{path}: you {} it, the agent {} it; {merge}\n",
        one.owner, one.agent
    )
}
