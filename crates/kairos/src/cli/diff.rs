//! `kairos diff`: what the staged file changes of a session would change, with the conventions of
//! git for colour and pager.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};

use crate::cli::{Which, print};
use crate::exit::{Failure, Outcome, Status};
use crate::setup::Setup;

/// Show staged file changes.
///
/// The output is a patch in git's form; what git has no form for (what will run, conflicts,
/// directories) is said in lines that start with `#`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    which: Which,
    /// Print one object a line
    #[arg(long)]
    json: bool,
    /// When to use colour
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: When,
    /// Do not start a pager
    #[arg(long)]
    no_pager: bool,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Diff {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let dir = self.which.find()?;
        let setup = Setup::read(&dir)?;
        let uppers: Vec<_> = setup.trees.iter().map(|(name, _)| dir.tree(name)).collect();
        let mut changes = files::staged_changes(&uppers).map_err(Failure::new)?;
        // A policy that cannot be read back takes nothing away from the diff but these words.
        if let Ok(loaded) = policy::recorded(&setup.policy) {
            for change in &mut changes {
                let place = loaded.kernel.executes(&change.tree, &change.path);
                change.place = place.map(str::to_string);
            }
        }
        let terminal = std::io::stdout().is_terminal();
        let colour = match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
        };
        if !(self.json || terminal || colour) {
            // For a program: the content as it is.
            let patches: Vec<Vec<u8>> = changes.iter().map(files::Change::patch).collect();
            return plain(&patches.concat());
        }
        let mut text = String::new();
        for change in &changes {
            if self.json {
                text.push_str(&serde_json::to_string(change).map_err(Failure::new)?);
                text.push('\n');
            } else {
                text.push_str(&change.to_string());
            }
        }
        if self.json {
            return print(&text);
        }
        let text = if colour { painted(&text) } else { text };
        if terminal && !self.no_pager && !text.is_empty() && paged(&text) {
            return Ok(Status::Success);
        }
        plain(text.as_bytes())
    }
}

/// Colours as git has them by default.
fn painted(text: &str) -> String {
    let of = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    let mut out = String::with_capacity(text.len() * 2);
    let mut in_hunk = false;
    for line in text.lines() {
        in_hunk &= !line.starts_with("diff --git ") && !line.starts_with("# ");
        in_hunk |= line.starts_with("@@ ");
        let style = match (line.chars().next(), in_hunk) {
            (Some('@'), true) => of(AnsiColor::Cyan),
            (Some('+'), true) => of(AnsiColor::Green),
            (Some('-'), true) => of(AnsiColor::Red),
            (Some('#'), false) => of(AnsiColor::Yellow),
            (_, true) => Style::new(),
            (_, false) => Style::new().bold(),
        };
        let _ = writeln!(out, "{}{line}{}", style.render(), style.render_reset());
    }
    out
}

/// Shows it in the user's pager; says whether there was one.
fn paged(text: &str) -> bool {
    let pager = ["KAIROS_PAGER", "GIT_PAGER", "PAGER"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .unwrap_or_else(|| "less".to_string());
    if pager.is_empty() || pager == "cat" {
        return false;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let Ok(mut child) = command.spawn() else {
        return false;
    };
    let fed = child
        .stdin
        .take()
        .map(|mut input| input.write_all(text.as_bytes()));
    // A pager that was left early has seen enough; one that was not found has shown nothing.
    let ended = child.wait();
    let missing = ended.is_ok_and(|status| status.code() == Some(127));
    fed.is_some() && !missing
}

/// As it is, whatever the terminal: whether there is colour was decided.
fn plain(text: &[u8]) -> Outcome<Status> {
    let mut out = std::io::stdout();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(Status::Success),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_as_git() {
        let text =
            "# runs: x: y\ndiff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n same\n";
        insta::assert_snapshot!(painted(text).replace('\u{1b}', "^"), @r"
        ^[33m# runs: x: y^[0m
        ^[1mdiff --git a/f b/f^[0m
        ^[1m--- a/f^[0m
        ^[1m+++ b/f^[0m
        ^[36m@@ -1 +1 @@^[0m
        ^[31m-old^[0m
        ^[32m+new^[0m
         same
        ");
    }
}
