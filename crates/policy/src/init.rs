//! Writes a commented `kairos.toml` that fits a repository.

use std::fs;
use std::path::Path;

use crate::error::listed;
use crate::load::DEFAULT;
use crate::read::Document;
use crate::sheet::Sheet;

/// A policy for a workspace, to be read and changed by its owner. It loads without mistakes and
/// allows no more than the package registries that the repository's own files call for.
pub fn init(workspace: &Path, home: &Path) -> String {
    let mut text = HEAD.to_string();
    text.push_str(&parties(workspace));
    text.push_str(&sensitive(workspace));
    text.push_str(&agent(home));
    text.push_str(TAIL);
    text
}

const HEAD: &str = r#"# The policy of Kairos for this workspace. It adds to a built-in default, which holds without this file, too:
# your task is trusted; this workspace is trusted for paths; `.env`, keys and the like are sensitive; the models'
# own paths are an internal channel; everything else is held and waits for your decision.
#
# `kairos policy check` tells what is in force. After a change here run `kairos policy trust`: the file lies where
# others may write, so it counts only as you approved it. docs/policy.md explains every key.

[task]
trusted = true # what you type is trusted for every kind of value

[workspace]
# For which kinds of value files here are trusted: host, url, path, email, account, command, package, number, date,
# text. Whoever can write to the repository can then steer the agent by them, so keep the list short.
trusted = ["path"]
# except = ["vendor/**", "third_party/**"]

# One place may be trusted for more than the rest:
# [[source]]
# path = "docs/deploy.md"
# trusted = ["host", "url"]

"#;

const TAIL: &str = r#"# Places whose content runs later are held for a look (git hooks, CI, package scripts, Makefiles, ...). More of them:
# [[executes]]
# path = "scripts/deploy/**"
# place = "deploy script"
# ... or fewer:
# [[executes]]
# path = "docs/Makefile"
# runs = false

# A secret that the agent uses but never sees: it gets a placeholder, and the variable's value is put in towards
# these hosts only.
# [[credential]]
# env = "GITHUB_TOKEN"
# hosts = ["api.github.com"]

# Rules only refuse, in the language Cedar; what a rule forbids, nobody can release.
# [[rule]]
# name = "no-publishing"
# says = "releases are made by CI"
# cedar = '''
# forbid(principal, action == Kairos::Action::"request", resource)
# when { resource.host like "*.example.org" && context.operation == "PUT" };
# '''

# Who decides what is held: "ask", "deny", "command:PROGRAM". Without it: you, on a terminal; otherwise everything
# waits for `kairos review`.
# [oracle]
# default = "ask"
# deadline = "60s"
"#;

fn parties(workspace: &Path) -> String {
    let has = |name: &str| workspace.join(name).exists();
    let any = |names: &[&str]| {
        names
            .iter()
            .find(|name| has(name))
            .map(|name| (*name).to_string())
    };
    let found: Vec<(&str, Option<String>)> = vec![
        ("crates.io", any(&["Cargo.toml"])),
        ("npm", any(&["package.json"])),
        (
            "pypi",
            any(&["pyproject.toml", "requirements.txt", "setup.py", "Pipfile"]),
        ),
        ("go", any(&["go.mod"])),
        (
            "maven",
            any(&["pom.xml", "build.gradle", "build.gradle.kts"]),
        ),
        ("rubygems", any(&["Gemfile"])),
        ("packagist", any(&["composer.json"])),
        ("nuget", any(&["global.json", "nuget.config"])),
        ("github-read", remote(workspace, "github.com")),
        ("gitlab-read", remote(workspace, "gitlab.com")),
    ];
    let mut text = String::from(
        "# Parties that the agent may talk to without being asked each time. A preset only reads, and nothing sensitive\n\
         # may go to it.\n",
    );
    let mut some = false;
    for (preset, why) in found {
        if let Some(why) = why {
            some = true;
            text.push_str(&format!(
                "[[party]]\npreset = \"{preset}\" # because of {why}\n\n"
            ));
        }
    }
    if !some {
        let shipped = Document::new("", DEFAULT);
        let presets = Sheet::read(&shipped, true).presets;
        let names = listed(presets.iter().map(|preset| preset.name.text.as_str()));
        text.push_str(&format!(
            "# [[party]]\n# preset = \"npm\" # there is {names}\n\n"
        ));
    }
    text.push_str(
        "# A party of your own:\n# [[party]]\n# hosts = [\"api.example.org\"]\n# allow = [\"GET\", \"POST /search\"] # or true, for \
         every request\n# clearance = \"internal\" # the most that it may get\n\n",
    );
    text
}

/// Where a git remote of the repository leads to a host.
fn remote(workspace: &Path, host: &str) -> Option<String> {
    let config = fs::read_to_string(workspace.join(".git/config")).ok()?;
    let leads = |line: &str| {
        line.trim_start().strip_prefix("url").is_some_and(|rest| {
            let url = rest.trim_start().trim_start_matches('=').trim();
            let after = url.split_once("://").map_or(url, |(_, rest)| rest);
            let after = after.split_once('@').map_or(after, |(_, rest)| rest);
            after
                .strip_prefix(host)
                .is_some_and(|rest| rest.starts_with(['/', ':']))
        })
    };
    config
        .lines()
        .any(leads)
        .then(|| "a git remote".to_string())
}

fn sensitive(workspace: &Path) -> String {
    const LOOKED_AT_MAX: usize = 2000;
    let policy = crate::load(None, workspace, Path::new("/nonexistent")).map(|l| l.kernel);
    let mut found = Vec::new();
    let mut open = vec![(workspace.to_path_buf(), 0)];
    let mut looked_at = 0;
    while let Some((directory, depth)) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > LOOKED_AT_MAX {
                break;
            }
            let path = entry.path();
            let Ok(below) = path.strip_prefix(workspace) else {
                continue;
            };
            let Some(name) = below.to_str() else { continue };
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
                let skip = [".git", "node_modules", "target", ".venv", "vendor"];
                if depth < 3 && !skip.contains(&entry.file_name().to_str().unwrap_or_default()) {
                    open.push((path.clone(), depth + 1));
                }
                continue;
            }
            let source = kernel::Source::Location {
                tree: crate::bind::WORKSPACE.to_string(),
                path: name.to_string(),
            };
            let printable = !name.chars().any(char::is_control);
            if printable
                && policy
                    .as_ref()
                    .is_ok_and(|p| p.sensitivity(&source) > kernel::Level::Public)
            {
                found.push(name.to_string());
            }
        }
    }
    found.sort();
    let mut text =
        String::from("# Sensitive content: what the agent reads there does not go out.\n");
    match found.as_slice() {
        [] => text.push_str("# The default finds nothing sensitive here by name.\n"),
        some => {
            text.push_str("# The default finds by name:");
            for name in some.iter().take(12) {
                text.push_str(&format!("\n#   {name}"));
            }
            if some.len() > 12 {
                text.push_str(&format!("\n#   and {} more", some.len() - 12));
            }
            text.push('\n');
        }
    }
    text.push_str(
        "# More of it:\n# [[sensitive]]\n# path = [\"customers/**\", \"*.sql\"]\n# except = [\"customers/example.csv\"]\n# level = \
         \"confidential\" # public, internal, confidential, critical\n\n",
    );
    text
}

fn agent(home: &Path) -> String {
    let shipped = Document::new("", DEFAULT);
    let default = Sheet::read(&shipped, true);
    let present: Vec<String> = default
        .known
        .iter()
        .flat_map(|known| &known.state)
        .filter(|word| crate::bind::expand(&word.text, home).is_dir())
        .map(|word| format!("\"{}\"", word.text))
        .collect();
    let mut text = String::from(
        "# The agent's own state: it works on a copy, and changes come back when they are released. Left out, it is what \
         known\n# agents have in your home",
    );
    let list = if present.is_empty() {
        text.push_str(" (nothing yet).\n");
        "\"~/.codex\"".to_string()
    } else {
        text.push_str(", now:\n");
        present.join(", ")
    };
    text.push_str(&format!(
        "# [agent]\n# state = [{list}]\n# seed = [\"~/.gitconfig\"] # files that its private home starts with\n# env = [\"MY_SETTING\"] # \
         further variables that it may see; never secrets\n# expose = [\"/opt/tools\"] # further places that it may read\n\n"
    ));
    text
}
