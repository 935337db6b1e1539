//! `kairos` itself: one invocation in a clean environment, as whom, where, and what it said.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::place::{self, ORDINARY};
use crate::process::{Finished, Process};
use crate::{Policy, Workspace, World};

/// As whom a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Whoever runs the tests.
    Me,
    /// An ordinary user without root; when root runs the tests, `kairos-test`.
    Ordinary,
}

impl Who {
    /// `KAIROS_E2E_WHO=ordinary` makes runs of tests that do not say otherwise those of an ordinary user.
    fn by_default() -> Self {
        match std::env::var("KAIROS_E2E_WHO").as_deref() {
            Ok("ordinary") => Self::Ordinary,
            Ok("me") | Err(_) => Self::Me,
            Ok(other) => panic!("KAIROS_E2E_WHO is `{other}`; write `me` or `ordinary`"),
        }
    }
}

/// One invocation of `kairos`.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    workspace: &'a Workspace,
    world: Option<&'a World>,
    who: Who,
    policy: Option<PathBuf>,
    task: String,
    folder: Option<String>,
    options: Vec<String>,
    command: Vec<String>,
    env: Vec<(String, String)>,
    limit: Duration,
    before: Option<String>,
}

/// How a `kairos run --json` ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub code: i32,
    /// What the agent said.
    pub stdout: String,
    pub stderr: String,
    /// The last line of standard output: the summary.
    pub summary: Value,
}

impl<'a> Run<'a> {
    /// `kairos run --json -- COMMAND` in the workspace, with nobody to ask.
    pub fn new(workspace: &'a Workspace, command: &[&str]) -> Self {
        Self {
            workspace,
            world: None,
            who: Who::by_default(),
            policy: None,
            // Without one, the command line would be the task and vouch for every host that a probe names.
            task: "Do what has to be done here.".to_owned(),
            folder: None,
            options: Vec::new(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            env: Vec::new(),
            limit: Duration::from_secs(120),
            before: None,
        }
    }

    /// Runs a shell script inside.
    pub fn shell(workspace: &'a Workspace, script: &str) -> Self {
        Self::new(workspace, &["/bin/sh", "-c", script])
    }

    pub fn policy(mut self, policy: &Policy) -> Self {
        let path = self.workspace.folder().join("kairos.toml");
        std::fs::write(&path, policy.text()).unwrap();
        self.policy = Some(path);
        self
    }

    pub fn task(mut self, task: &str) -> Self {
        task.clone_into(&mut self.task);
        self
    }

    pub fn who(mut self, who: Who) -> Self {
        self.who = who;
        self
    }

    pub fn within(mut self, world: &'a World) -> Self {
        self.world = Some(world);
        self
    }

    /// One of `tests/oracles/`, as `--oracle command:PROG`.
    pub fn oracle(self, name: &str) -> Self {
        let path = place::root().join("tests/oracles").join(name);
        // Where every user can run it.
        let copy = self.workspace.folder().join(name);
        std::fs::copy(&path, &copy).unwrap();
        if name == "fails" {
            std::fs::copy(
                path.with_file_name("approve-all"),
                copy.with_file_name("approve-all"),
            )
            .unwrap();
        }
        self.option("--oracle")
            .option(&format!("command:{}", copy.display()))
    }

    /// An option of `kairos run`, before the `--`.
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Another folder than the workspace's own as `--workspace`.
    pub fn workspace(mut self, folder: &str) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Shell text that runs in the process that becomes kairos, such as `exec 7</some/file`.
    pub fn before(mut self, shell: &str) -> Self {
        self.before = Some(shell.to_owned());
        self
    }

    pub fn start(&self) -> Process {
        let mut arguments: Vec<OsString> = vec!["run".into(), "--json".into()];
        let folder = self
            .folder
            .clone()
            .map_or_else(|| self.workspace.path(), PathBuf::from);
        arguments.extend(["--workspace".into(), folder.into_os_string()]);
        if let Some(policy) = &self.policy {
            arguments.extend(["--policy".into(), policy.into()]);
        }
        arguments.extend(["--task".into(), self.task.clone().into()]);
        arguments.extend(self.options.iter().map(Into::into));
        arguments.push("--".into());
        arguments.extend(self.command.iter().map(Into::into));
        self.workspace.give_to(self.who);
        let command = command(
            self.workspace,
            self.who,
            self.world,
            self.before.as_deref(),
            &arguments,
            &self.env,
        );
        Process::start(command, &self.workspace.logs(), "kairos-run")
    }

    pub fn finish(&self) -> Outcome {
        Outcome::of(self.start().finish(self.limit))
    }
}

impl Outcome {
    pub fn of(finished: Finished) -> Self {
        // The summary quotes the command, so what the agent said is kept apart from it.
        let text = finished.stdout.trim_end_matches('\n');
        let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
        let (stdout, summary) = match serde_json::from_str::<Value>(last) {
            Ok(summary) if summary["session"].is_string() => {
                (format!("{}\n", before.trim_end_matches('\n')), summary)
            }
            _ => (finished.stdout.clone(), Value::Null),
        };
        Self {
            code: finished.code,
            stdout,
            stderr: finished.stderr,
            summary,
        }
    }

    /// The effects of one list (`released`, `held`, `refused`) whose object (a URL, a path) holds `word`.
    pub fn listed(&self, list: &str, word: &str) -> Vec<Value> {
        let all = self.summary[list].as_array().cloned().unwrap_or_default();
        all.into_iter()
            .filter(|effect| {
                effect["object"]
                    .as_str()
                    .is_some_and(|object| object.contains(word))
            })
            .collect()
    }

    pub fn session(&self) -> &str {
        self.summary["session"]
            .as_str()
            .unwrap_or_else(|| panic!("no session in the summary\n{self}"))
    }

    /// Fails unless the run ended so; shows everything when it did not.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "exit status\n{self}");
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "exit status {}\n--- stdout\n{}\n--- stderr\n{}\n--- summary\n{}",
            self.code, self.stdout, self.stderr, self.summary
        )
    }
}

/// Any other subcommand: `kairos review`, `kairos log SESSION --verify`, ...
pub fn kairos(workspace: &Workspace, who: Who, arguments: &[&str]) -> Finished {
    let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
    let command = command(workspace, who, None, None, &arguments, &[]);
    Process::start(command, &workspace.logs(), "kairos").finish(Duration::from_secs(60))
}

/// The same, from where a test of its own wants it.
pub fn kairos_from(workspace: &Workspace, who: Who, folder: &Path, arguments: &[&str]) -> Finished {
    let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
    let mut command = command(workspace, who, None, None, &arguments, &[]);
    command.current_dir(folder);
    Process::start(command, &workspace.logs(), "kairos").finish(Duration::from_secs(60))
}

/// A command outside the boundary, in the same environment: the control of a probe.
pub fn outside(workspace: &Workspace, who: Who, world: Option<&World>, script: &str) -> Finished {
    let mut command = prefixed(workspace, who, world);
    command
        .args(["/bin/sh", "-c", script])
        .current_dir(workspace.path());
    clean(&mut command, workspace);
    Process::start(command, &workspace.logs(), "outside").finish(Duration::from_secs(60))
}

fn command(
    workspace: &Workspace,
    who: Who,
    world: Option<&World>,
    before: Option<&str>,
    arguments: &[OsString],
    env: &[(String, String)],
) -> Command {
    let program = if who == Who::Me {
        place::kairos()
    } else {
        place::kairos_for_everybody()
    };
    let mut command = prefixed(workspace, who, world);
    if let Some(before) = before {
        command.args(["/bin/sh", "-c", &format!("{before}; exec \"$@\""), "sh"]);
    }
    command
        .arg(program)
        .args(arguments)
        .current_dir(workspace.path());
    clean(&mut command, workspace);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    command
}

/// What comes before a command: the world it runs in and the user it runs as.
fn prefixed(workspace: &Workspace, who: Who, world: Option<&World>) -> Command {
    let mut words: Vec<String> = world
        .map(|world| world.enter(&workspace.path()))
        .unwrap_or_default();
    if who == Who::Ordinary && place::is_root() {
        let account = [
            format!("--reuid={ORDINARY}"),
            format!("--regid={ORDINARY}"),
            "--init-groups".into(),
        ];
        words.push("setpriv".into());
        words.extend(account);
    }
    if words.is_empty() {
        words.push("env".into());
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The system's programs; before them a Node.js that agents can use, where the system's is too old.
fn path() -> String {
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let modules = place::agents().join("node/node_modules").read_dir();
    let newer = modules
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .find(|bin| bin.join("node").exists());
    newer.map_or_else(
        || system.to_owned(),
        |bin| format!("{}:{system}", bin.display()),
    )
}

/// Nothing of the developer's own: not the variables that name certificates, not the agents' keys, not the session bus.
fn clean(command: &mut Command, workspace: &Workspace) {
    command
        .env_clear()
        .env("PATH", path())
        .env("HOME", workspace.home())
        .env("XDG_STATE_HOME", workspace.state())
        .env("LANG", "C.UTF-8")
        .env("USER", "tester")
        .stdin(Stdio::null());
}
