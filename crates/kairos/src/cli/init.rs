//! `kairos init`: a commented policy that fits the repository, approved as its author wrote it.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use crate::cli::print;
use crate::exit::{Failure, Outcome, Status, at};
use crate::surroundings::{Surroundings, workspace};
use crate::wiring;

/// Write a policy.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The repository [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Print the policy instead of writing it
    #[arg(long)]
    print: bool,
}

impl Init {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let surroundings = Surroundings::read()?;
        let workspace = workspace(self.workspace.as_deref())?;
        let text = policy::init(&workspace, &surroundings.home);
        if self.print {
            return print(&text);
        }
        let path = workspace.join(policy::FILE_NAME);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| {
                if error.kind() == std::io::ErrorKind::AlreadyExists {
                    Failure::new(format!(
                        "`{}` is there already; change it by hand, or remove it to start anew",
                        path.display()
                    ))
                } else {
                    at("create", &path)(error)
                }
            })?;
        file.write_all(text.as_bytes())
            .map_err(at("write", &path))?;
        policy::trust(&wiring::places(&surroundings, &workspace)).map_err(Failure::policy)?;
        print(&format!(
            "Wrote `{}`; it is in force for this workspace.\nAfter you change it, `kairos policy trust` puts the change in force.\n",
            path.display()
        ))
    }
}
