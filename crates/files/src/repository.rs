//! What git would run in a repository besides what stands in `.git`: hooks where the configuration
//! says, the files that it includes, the programs that it names, and git directories under other
//! names. Read from the files themselves; git is never asked.

use std::path::{Path, PathBuf};

use rustix::io::Result;

use crate::attr::Kind;
use crate::delta::Delta;
use crate::path::{components, join, split};
use crate::runs;
use crate::tree::State;

/// Files of configuration that one may include, one within the other.
const INCLUDES_MAX: usize = 8;
const CONFIGURATION: &str = "git configuration";

/// What a repository's configuration leads to, as absolute paths.
#[derive(Debug, Default)]
pub(crate) struct Leads {
    /// Directories of hooks.
    pub(crate) hooks: Vec<PathBuf>,
    /// Files, and as what they run.
    pub(crate) files: Vec<(PathBuf, String)>,
}

/// Reads the configurations of the repository whose work tree begins at `top`, and those that are
/// for every repository; `read` gives the versions of a file, staged and the owner's.
pub(crate) fn leads(
    top: &Path,
    everywhere: &[PathBuf],
    home: Option<&Path>,
    read: &mut dyn FnMut(&Path) -> Vec<String>,
) -> Leads {
    let mut reading = Reading {
        top,
        home,
        read,
        found: Leads::default(),
    };
    for config in everywhere {
        reading.config(config, 0);
    }
    for git in reading.directories() {
        reading.config(&git.join("config"), 0);
        reading.config(&git.join("config.worktree"), 0);
    }
    reading.found
}

struct Reading<'a> {
    top: &'a Path,
    home: Option<&'a Path>,
    read: &'a mut dyn FnMut(&Path) -> Vec<String>,
    found: Leads,
}

impl Reading<'_> {
    /// The git directories of a work tree: its own, and the one that it shares with others.
    fn directories(&mut self) -> Vec<PathBuf> {
        let git = self.top.join(".git");
        let mut found = vec![git.clone()];
        for text in (self.read)(&git) {
            if let Some(at) = text.strip_prefix("gitdir:") {
                found.push(self.top.join(at.trim()));
            }
        }
        for git in found.clone() {
            for text in (self.read)(&git.join("commondir")) {
                found.push(git.join(text.trim()));
            }
        }
        found
    }

    fn config(&mut self, at: &Path, depth: usize) {
        if depth > INCLUDES_MAX {
            return;
        }
        let dir = at.parent().unwrap_or(at).to_path_buf();
        for text in (self.read)(at) {
            for said in runs::git_config(&text) {
                let key = said.entry.to_ascii_lowercase();
                let value = said.command.trim_matches('"');
                if key == "core.hookspath" {
                    let hooks = self.written(self.top, value);
                    self.found.hooks.push(hooks);
                } else if key.starts_with("include") && key.ends_with(".path") {
                    let included = self.written(&dir, value);
                    let what = format!("{CONFIGURATION} ({})", said.entry);
                    self.found.files.push((included.clone(), what));
                    self.config(&included, depth + 1);
                } else {
                    self.named(&said.entry, value);
                }
            }
        }
    }

    /// Programs and files that a value names.
    fn named(&mut self, entry: &str, value: &str) {
        let words = value.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';'));
        for word in words {
            let word = word.trim_start_matches('!');
            if word.contains('/') && !word.contains("://") {
                let what = format!("{CONFIGURATION} names it ({entry})");
                self.found.files.push((self.written(self.top, word), what));
            }
        }
    }

    fn written(&self, dir: &Path, value: &str) -> PathBuf {
        match (value.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.join(value),
        }
    }
}

/// As what a change runs that makes or changes a git directory, wherever it is: a `.git` that names
/// one, what one shares with others, and configuration and hooks of one with another name.
pub(crate) fn part(
    state: &mut State,
    tree: usize,
    delta: &Delta,
    text: Option<String>,
) -> Result<Option<String>> {
    let (Some(new), Some((dir, name))) = (&delta.new, split(&delta.path)) else {
        return Ok(None);
    };
    match name {
        b".git" if new.kind == Kind::File => {
            let named = text
                .as_deref()
                .and_then(|text| text.strip_prefix("gitdir:"));
            // What stands there is a place by the tables.
            let root = state.tree(tree)?.base.path().to_path_buf();
            let read = |path: &[u8]| link_at(state, tree, path);
            let known = named
                .and_then(|to| crate::links::resolved(&root, read, dir, to.trim().as_bytes()))
                .is_some_and(|git| is_kept_by_git(&git));
            return Ok((!known).then(|| format!("{CONFIGURATION} (it names a repository)")));
        }
        b"commondir" => {
            let usual = is_kept_by_git(dir) && text.as_deref().map(str::trim) == Some("../..");
            let git = dir.ends_with(b".git") || is_kept_by_git(dir) || is_git(state, tree, dir)?;
            return Ok((git && !usual).then(|| format!("{CONFIGURATION} (it names a repository)")));
        }
        _ => {}
    }
    let above = split(dir).unwrap_or_default();
    let (git, makes_one) = match name {
        b"HEAD" | b"objects" | b"refs" => (dir, true),
        b"config" | b"config.worktree" | b"hooks" => (dir, false),
        b"attributes" if above.1 == b"info" => (above.0, false),
        _ if above.1 == b"hooks" || dir == b"hooks" => (above.0, false),
        _ => return Ok(None),
    };
    // Those are in the tables.
    let by_table = git == b".git" || git.ends_with(b"/.git") || is_kept_by_git(git);
    if by_table || !is_git(state, tree, git)? {
        return Ok(None);
    }
    let was = |name: &[u8]| -> Result<bool> {
        let base = &state.tree(tree)?.base;
        Ok(base.version(&join(git, name))?.is_some())
    };
    if makes_one && was(b"HEAD")? && was(b"objects")? && was(b"refs")? {
        return Ok(None);
    }
    Ok(Some(format!(
        "{CONFIGURATION} (a git directory with a name of its own)"
    )))
}

/// Whether a path is of the form `….git/worktrees/NAME` or `….git/modules/NAME…`.
fn is_kept_by_git(path: &[u8]) -> bool {
    let parts: Vec<&[u8]> = components(path).collect();
    parts
        .windows(3)
        .enumerate()
        .any(|(at, window)| match window {
            [b".git", b"worktrees", _] => at + 3 == parts.len(),
            [b".git", b"modules", _] => true,
            _ => false,
        })
}

/// Whether git would take a directory of the view for a repository.
fn is_git(state: &mut State, tree: usize, dir: &[u8]) -> Result<bool> {
    let mut has =
        |name: &[u8]| -> Result<bool> { Ok(state.walk(tree, &join(dir, name))?.is_some()) };
    Ok(has(b"HEAD")? && (has(b"objects")? && has(b"refs")? || has(b"commondir")?))
}

/// Where a link of the view points.
pub(crate) fn link_at(state: &mut State, tree: usize, path: &[u8]) -> Option<Vec<u8>> {
    let ino = state.walk(tree, path).ok()??;
    let node = state.node(ino).ok()?;
    (node.kind == Kind::Symlink).then(|| node.target.clone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_leads_to_hooks_includes_and_programs() {
        let files = [
            (
                "/w/.git/config",
                "[include]\n path = ../shared.cfg\n[core]\n fsmonitor = ./bin/watch -v\n pager = less\n",
            ),
            (
                "/w/shared.cfg",
                "[core]\n hooksPath = gh\n[include]\n path = shared.cfg\n",
            ),
            (
                "/home/u/.gitconfig",
                "[includeIf \"gitdir:/w/\"]\n path = ~/work.cfg\n",
            ),
            (
                "/home/u/work.cfg",
                "[filter \"f\"]\n clean = \"/w/tools/clean\" %f\n",
            ),
            ("/w/sub/.git", "gitdir: ../.git/modules/sub\n"),
            (
                "/w/.git/modules/sub/config",
                "[core]\n hookspath = hooks of sub\n",
            ),
        ];
        let mut read = |path: &Path| {
            let at = crate::links::resolved(
                Path::new("/"),
                |_| None,
                b"",
                path.as_os_str().as_encoded_bytes(),
            );
            let at = PathBuf::from(format!("/{}", crate::path::text(&at.unwrap_or_default())));
            let found = files.iter().filter(|(file, _)| at == Path::new(file));
            found.map(|(_, text)| text.to_string()).collect()
        };
        let everywhere = [PathBuf::from("/home/u/.gitconfig")];
        let home = Some(Path::new("/home/u"));
        let found = leads(Path::new("/w"), &everywhere, home, &mut read);
        assert_eq!(found.hooks.first(), Some(&PathBuf::from("/w/gh")));
        let files: Vec<String> = found
            .files
            .iter()
            .map(|(at, what)| format!("{}: {what}", at.display()))
            .collect();
        for expect in [
            "/home/u/work.cfg: git configuration (includeIf.gitdir:/w/.path)",
            "/w/tools/clean: git configuration names it (filter.f.clean)",
            "/w/.git/../shared.cfg: git configuration (include.path)",
            "/w/./bin/watch: git configuration names it (core.fsmonitor)",
        ] {
            assert!(
                files.iter().any(|file| file == expect),
                "{expect} in {files:#?}"
            );
        }
        let sub = leads(Path::new("/w/sub"), &[], home, &mut read);
        assert_eq!(sub.hooks, [PathBuf::from("/w/sub/hooks of sub")]);
    }

    #[test]
    fn what_git_keeps_for_itself() {
        for (path, expect) in [
            (".git/worktrees/w", true),
            ("a/.git/modules/b/c", true),
            (".git/worktrees/w/deep", false),
            (".git/worktrees", false),
            ("git/modules/a", false),
        ] {
            assert_eq!(is_kept_by_git(path.as_bytes()), expect, "{path}");
        }
    }
}
