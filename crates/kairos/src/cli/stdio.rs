//! `kairos decide --stdio`: the kernel for any harness, one JSON object a line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use kernel::{Carried, Scanner};
use monitor::View;
use serde_json::Value;
use store::{MemoryDisk, OsDisk, SessionDir};
use tools::{LoadedPolicy, Outside, PolicyText, Service, Sessions};

use crate::exit::{Failure, Outcome, Status};
use crate::setup::Setup;
use crate::surroundings::{Surroundings, now};

/// Decide a harness's tool calls.
#[derive(Debug, Args)]
pub(crate) struct Stdio {
    /// Read requests from standard input and answer on standard output
    #[arg(long, required = true)]
    stdio: bool,
    /// Keep every session's log below this directory [default: in memory only]
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
}

impl Stdio {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let home = Surroundings::read()?.home;
        let (disk, root, forget) = match self.log {
            Some(root) => (OsDisk::shared(), root, false),
            None => (MemoryDisk::shared(), PathBuf::from("/"), true),
        };
        let service = Service {
            disk,
            root,
            clock: now,
            outside: Box::new(Wired {
                home,
                keep: !forget,
            }),
            forget,
        };
        let mut sessions = Sessions::new(service);
        sessions
            .serve(std::io::stdin().lock(), std::io::stdout().lock())
            .map(|()| Status::Success)
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::BrokenPipe => Ok(Status::Success),
                _ => Err(Failure::new(format!("cannot go on: {error}"))),
            })
    }
}

/// What the protocol leaves to other crates.
struct Wired {
    home: PathBuf,
    keep: bool,
}

impl Outside for Wired {
    fn load(&self, text: &PolicyText) -> Result<LoadedPolicy, String> {
        // A harness's sessions have no workspace of files.
        let workspace = Path::new("/");
        let loaded = match text {
            PolicyText::File(path) => policy::load(Some(path), workspace, &self.home),
            PolicyText::Text(text) => policy::load_text(text, workspace, &self.home),
        }
        .map_err(|errors| errors.to_string())?;
        Ok(LoadedPolicy {
            summary: loaded.summary(),
            recorded: loaded.text,
            policy: Arc::new(loaded.kernel),
            rules: Arc::new(loaded.rules),
        })
    }

    fn keep(&self, dir: &SessionDir, policy: &LoadedPolicy) -> Result<(), String> {
        if !self.keep {
            return Ok(());
        }
        let setup = Setup {
            format: 1,
            command: vec!["decide".to_string()],
            workspace: PathBuf::from("/"),
            identity: dir.id(),
            policy: policy.recorded.clone(),
            trees: Vec::new(),
            placeholders: Vec::new(),
            mode: crate::setup::RunMode::Enforce,
        };
        setup.write(dir).map_err(|failure| failure.message)
    }

    fn view(&self, view: &View, policy: &str) -> Value {
        oracles::wire::view(view, policy)
    }

    fn authority(&self, text: &str) -> Result<(String, Option<u16>), String> {
        net::canonical::authority(text).map_err(|why| why.to_string())
    }

    fn target(&self, path: &str) -> Result<String, String> {
        net::canonical::path(path).map_err(|why| why.to_string())
    }

    fn carried(&self, scanner: &Scanner, bytes: &[u8]) -> Result<Carried, String> {
        net::carried(scanner, bytes)
    }
}
