//! Places that run later although no table can name them: hooks where `core.hooksPath` says, what a
//! link in such a place points to, and a link that leads into one. The tables are the policy's; here
//! is what only the tree itself can tell.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use kernel::policy::Policy;
use rustix::io::Result;

use crate::attr::Kind;
use crate::bytes::beginning;
use crate::delta::Delta;
use crate::overlay::Overlay;
use crate::path::{self, Rel, components, join, lies_at, split};
use crate::runs;
use crate::tree::{Ino, State};

/// Names of hooks that git knows.
const HOOKS: [&str; 28] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "post-index-change",
];
const CONFIG_BYTES_MAX: u64 = 256 << 10;

/// Whether a change is in a place that runs later, and as what.
#[derive(Debug)]
pub(crate) enum Runs {
    No,
    /// The policy's tables say as what.
    ByTable,
    /// As this, which only the tree can tell.
    As(String),
}

impl Runs {
    pub(crate) fn later(&self) -> bool {
        !matches!(self, Self::No)
    }
}

/// What was found out about the trees in one pass.
#[derive(Default)]
pub(crate) struct Places {
    seen: HashSet<(usize, Rel)>,
    /// Directories whose files are hooks.
    hooks: BTreeMap<(usize, Rel), String>,
    /// What links in executing places point to.
    targets: HashMap<(usize, Rel), String>,
    /// `core.hooksPath` of the user's own configuration.
    everywhere: Vec<String>,
}

impl Places {
    pub(crate) fn new(everywhere: &[String]) -> Self {
        Self {
            everywhere: everywhere.to_vec(),
            ..Self::default()
        }
    }

    /// Looks at the directories above a delta, before anything of the same pass is decided.
    pub(crate) fn look_above(
        &mut self,
        overlay: &Overlay,
        policy: &Policy,
        tree: usize,
        delta: &Delta,
    ) {
        let mut state = overlay.lock();
        let mut above = delta.path.as_slice();
        while let Some((parent, _)) = split(above) {
            above = parent;
            if self.seen.insert((tree, above.to_vec()))
                && let Err(error) = self.look(&mut state, policy, tree, &delta.tree, above)
            {
                tracing::debug!("{}: {error}", path::text(above));
            }
        }
    }

    /// Whether a delta's path runs later.
    pub(crate) fn runs(&self, policy: &Policy, tree: usize, delta: &Delta) -> Runs {
        if policy
            .executes(&delta.tree, &path::text(&delta.path))
            .is_some()
        {
            return Runs::ByTable;
        }
        self.runs_as(policy, tree, delta).map_or(Runs::No, Runs::As)
    }

    fn runs_as(&self, policy: &Policy, tree: usize, delta: &Delta) -> Option<String> {
        let is_link = delta
            .new
            .as_ref()
            .is_some_and(|new| new.kind == Kind::Symlink);
        if is_link && let Some(place) = leads_into(policy, &delta.path) {
            return Some(format!("{place} (a link that stands for its directory)"));
        }
        let at = |dir: &Rel| lies_at(&delta.path, dir);
        let hook = self.hooks.iter().find(|((index, dir), _)| {
            *index == tree && at(dir) && (!dir.is_empty() || is_hook(&delta.path))
        });
        if let Some((_, place)) = hook {
            return Some(place.clone());
        }
        self.targets
            .iter()
            .find(|((index, target), _)| *index == tree && at(target))
            .map(|(_, place)| place.clone())
    }

    /// Looks at one directory: is it a repository, are there links in places that run later?
    fn look(
        &mut self,
        state: &mut State,
        policy: &Policy,
        tree: usize,
        name: &str,
        dir: &[u8],
    ) -> Result<()> {
        self.links(state, policy, tree, name, dir)?;
        let git = join(dir, b".git");
        if state.walk(tree, &git)?.is_none() {
            return Ok(());
        }
        self.links(state, policy, tree, name, &join(&git, b"hooks"))?;
        let mut paths = self.everywhere.clone();
        let config = join(&git, b"config");
        let mut texts = Vec::new();
        // As it is staged, and as the owner has it now.
        if let Some(ino) = state.walk(tree, &config)? {
            texts.extend(content(state, ino));
        }
        let base = &state.tree(tree)?.base;
        texts.extend(
            base.open_file(&config)
                .ok()
                .and_then(|(file, _)| text(&file)),
        );
        for text in texts {
            paths.extend(hooks_paths(&text));
        }
        let root = state.tree(tree)?.base.path().to_path_buf();
        for given in paths {
            let given = given.trim_matches('"');
            let rel = match given.strip_prefix('/') {
                None => resolved(dir, given.as_bytes()),
                Some(_) => std::path::Path::new(given)
                    .strip_prefix(&root)
                    .ok()
                    .and_then(|rel| resolved(b"", rel.as_os_str().as_encoded_bytes())),
            };
            if let Some(rel) = rel {
                self.hooks
                    .insert((tree, rel), "git hook (core.hooksPath)".to_string());
            }
        }
        Ok(())
    }

    /// Notes where links of one directory point to whose names are places that run later.
    fn links(
        &mut self,
        state: &mut State,
        policy: &Policy,
        tree: usize,
        name: &str,
        dir: &[u8],
    ) -> Result<()> {
        let Some(ino) = state.walk(tree, dir)? else {
            return Ok(());
        };
        if state.node(ino)?.kind != Kind::Dir {
            return Ok(());
        }
        state.load(ino)?;
        let links: Vec<Vec<u8>> = match &state.node(ino)?.dir {
            Some(listing) => listing
                .after(0)
                .filter(|(_, name)| {
                    listing.find(name).and_then(|slot| slot.kind) == Some(Kind::Symlink)
                })
                .map(|(_, name)| name.to_vec())
                .collect(),
            None => return Ok(()),
        };
        for link in links {
            let at = join(dir, &link);
            let text = path::text(&at);
            let Some(place) = policy.executes(name, &text) else {
                continue;
            };
            let Some(child) = state.child(ino, &link)? else {
                continue;
            };
            let target = state.node(child)?.target.clone().unwrap_or_default();
            if let Some(target) = resolved(dir, &target) {
                self.targets
                    .insert((tree, target), format!("{place} (through the link {text})"));
            }
        }
        Ok(())
    }
}

/// Values of `core.hooksPath` in a git configuration.
pub fn hooks_paths(config: &str) -> Vec<String> {
    runs::git_config(config)
        .into_iter()
        .filter(|runs| runs.entry.eq_ignore_ascii_case("core.hookspath"))
        .map(|runs| runs.command)
        .collect()
}

fn is_hook(path: &[u8]) -> bool {
    split(path).is_some_and(|(_, name)| HOOKS.iter().any(|hook| hook.as_bytes() == name))
}

/// The place that a link with this path would stand for: a table names something below it.
fn leads_into<'a>(policy: &'a Policy, path: &[u8]) -> Option<&'a str> {
    let text = path::text(path);
    let parts: Vec<&str> = text.split('/').collect();
    policy.executes.iter().find_map(|rule| {
        let pattern = rule.path.0.split(" !").next().unwrap_or_default();
        let anywhere = pattern.strip_prefix("**/");
        let wanted: Vec<&str> = anywhere
            .unwrap_or(pattern)
            .trim_matches('/')
            .split('/')
            .take_while(|part| !part.contains(['*', '?']))
            .collect();
        // A single name matches at any depth, and was asked about already.
        let leads = (1..=wanted.len()).any(|length| {
            let head = wanted.get(..length).unwrap_or_default();
            let fits = parts.ends_with(head) && (anywhere.is_some() || parts.len() == length);
            let more = length
                < pattern.trim_matches('/').split('/').count() - usize::from(anywhere.is_some());
            fits && more
        });
        leads.then_some(rule.place.as_str())
    })
}

/// A path as written in a directory, without `.` and `..`; `None` when it leads out of the tree.
fn resolved(dir: &[u8], written: &[u8]) -> Option<Rel> {
    if written.first() == Some(&b'/') || written.first() == Some(&b'~') {
        return None;
    }
    let mut parts: Vec<&[u8]> = components(dir).collect();
    for part in components(written) {
        match part {
            b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

fn content(state: &State, ino: Ino) -> Option<String> {
    let node = state.node(ino).ok()?;
    let tree = state.tree(node.tree).ok()?;
    let file = match (node.data, &node.base) {
        (Some(id), _) => tree.upper.open_data(id).ok()?,
        (None, Some(path)) => tree.base.open_file(path).ok()?.0,
        (None, None) => return None,
    };
    text(&file)
}

fn text(file: &File) -> Option<String> {
    let bytes = beginning(file, CONFIG_BYTES_MAX).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::policy::{ExecutesRule, Glob};

    #[test]
    fn links_that_stand_for_a_place() {
        let rule = |path: &str| ExecutesRule {
            path: Glob(path.into()),
            place: path.into(),
        };
        let policy = Policy {
            executes: vec![
                rule("**/.git/hooks/**"),
                rule("**/.github/workflows/**"),
                rule("Makefile"),
                rule("config/hooks/*.sh"),
            ],
            ..Policy::default()
        };
        for (path, expect) in [
            (".git/hooks", true),
            ("sub/.git", true),
            ("a/.github", true),
            ("a/.github/workflows", true),
            ("config", true),
            ("config/hooks", true),
            ("a/config", false),
            ("hooks", false),
            ("src", false),
            ("Makefile", false),
        ] {
            assert_eq!(
                leads_into(&policy, path.as_bytes()).is_some(),
                expect,
                "{path}"
            );
        }
    }

    #[test]
    fn paths_are_resolved() {
        for (dir, written, expect) in [
            ("", "h", Some("h")),
            ("a/b", "../h/./x", Some("a/h/x")),
            ("a", "../..", None),
            ("a", "..", Some("")),
            ("a", "/abs", None),
            ("a", "~/h", None),
        ] {
            let found = resolved(dir.as_bytes(), written.as_bytes());
            assert_eq!(
                found.as_deref(),
                expect.map(str::as_bytes),
                "{dir} {written}"
            );
        }
        assert_eq!(
            hooks_paths("[core]\n hookspath = .h\n[x]\nhooksPath = n\n"),
            [".h"]
        );
    }
}
