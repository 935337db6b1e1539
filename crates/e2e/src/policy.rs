//! The `kairos.toml` of a test, written by hand as an operator would.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Collects what a test's policy says beyond the built-in default.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    text: String,
    roots: Vec<PathBuf>,
    state: Vec<String>,
    expose: Vec<PathBuf>,
    env: Vec<String>,
}

impl Policy {
    pub fn new() -> Self {
        Self::default()
    }

    /// A model provider, played by somebody else than its name says.
    pub fn provider(mut self, host: &str, upstream: &str) -> Self {
        writeln!(
            self.text,
            "[[party]]\nhost = \"{host}\"\nprovider = true\nupstream = \"{upstream}\"\n"
        )
        .unwrap();
        self
    }

    /// A party whose name leads somewhere else, and of which the policy says nothing more: effects towards it are held.
    pub fn elsewhere(mut self, host: &str, upstream: &str) -> Self {
        writeln!(
            self.text,
            "[[party]]\nhost = \"{host}\"\nupstream = \"{upstream}\"\n"
        )
        .unwrap();
        self
    }

    /// A party that the operator allows.
    pub fn allow(mut self, host: &str, upstream: Option<&str>) -> Self {
        writeln!(self.text, "[[party]]\nhost = \"{host}\"\nallow = true").unwrap();
        if let Some(upstream) = upstream {
            writeln!(self.text, "upstream = \"{upstream}\"").unwrap();
        }
        self.text.push('\n');
        self
    }

    /// A root that upstream servers may be signed by.
    pub fn root(mut self, ca: &Path) -> Self {
        self.roots.push(ca.to_owned());
        self
    }

    /// A state folder of the agent, below the home.
    pub fn state(mut self, folder: &str) -> Self {
        self.state.push(folder.to_owned());
        self
    }

    /// A folder that the agent may read.
    pub fn expose(mut self, folder: &Path) -> Self {
        self.expose.push(folder.to_owned());
        self
    }

    /// A variable that the agent may have.
    pub fn env(mut self, name: &str) -> Self {
        self.env.push(name.to_owned());
        self
    }

    /// More, as it stands.
    pub fn more(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self.text.push('\n');
        self
    }

    pub fn text(&self) -> String {
        format!("{}{}", self.head(), self.text)
    }

    fn head(&self) -> String {
        let list = |items: &[String]| {
            items
                .iter()
                .map(|item| format!("{item:?}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let shown = |paths: &[PathBuf]| {
            paths
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        let mut head = format!("[net]\nroots = [{}]\n\n", list(&shown(&self.roots)));
        let agent = [
            ("state", &self.state),
            ("expose", &shown(&self.expose)),
            ("env", &self.env),
        ];
        if agent.iter().any(|(_, items)| !items.is_empty()) {
            head.push_str("[agent]\n");
            for (name, items) in agent.iter().filter(|(_, items)| !items.is_empty()) {
                writeln!(head, "{name} = [{}]", list(items)).unwrap();
            }
            head.push('\n');
        }
        head
    }
}
