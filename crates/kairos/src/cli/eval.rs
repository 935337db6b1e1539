//! `kairos eval`: the evaluation, which is a Python package of its own (`eval/`), started with this
//! program as the one that decides.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;

use crate::exit::{Failure, Outcome, Status};

/// Measure what Kairos stops and what it costs.
#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// What to do: `all`, `report`, ...; `--help` lists it
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<OsString>,
}

/// Names the Python that has the package, when it is not the one on the path.
const PYTHON: &str = "KAIROS_EVAL_PYTHON";

impl Eval {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
        let known = Command::new(&python)
            .args(["-c", "import kairos_eval"])
            .stderr(std::process::Stdio::null())
            .status();
        if !known.is_ok_and(|status| status.success()) {
            return Err(Failure::new(format!(
                "`{}` has no module `kairos_eval`; install it from the source tree with `pip install ./eval`, or \
                 name a Python that has it in {PYTHON}",
                python.to_string_lossy()
            )));
        }
        let this = std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot tell where this program is: {error}")))?;
        let error = Command::new(&python)
            .args(["-m", "kairos_eval"])
            .args(self.words)
            .env("KAIROS", this)
            .exec();
        Err(Failure::new(format!(
            "cannot start `{}`: {error}",
            python.to_string_lossy()
        )))
    }
}
