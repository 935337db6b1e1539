//! Places that run later although no table can name them: other names of such a place, hooks where
//! `core.hooksPath` says, files that a git configuration includes or names, git directories under
//! names of their own, and a link that leads into a place. The tables are the policy's; here is what
//! only the tree itself, and what it lies in, can tell.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::policy::Policy;

use crate::attr::Kind;
use crate::bytes::beginning;
use crate::links::{Links, resolved};
use crate::overlay::Overlay;
use crate::path::{self, Rel, join, lies_at, split};
use crate::repository::{self, link_at};
use crate::settle::Pending;
use crate::tree::{Ino, State, WORKSPACE};

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

/// The user's own configuration, as far as it decides what runs.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Configurations of git for every repository.
    pub git: Vec<PathBuf>,
    /// The home directory.
    pub home: Option<PathBuf>,
}

/// What is known of the trees. It only grows: what once ran later is held for the whole session.
#[derive(Default)]
pub(crate) struct Places {
    own: Own,
    trees: BTreeMap<usize, Tree>,
    seen: HashSet<(usize, Rel)>,
}

/// What is known of one tree.
#[derive(Default)]
struct Tree {
    links: Links,
    /// Directories whose files are hooks.
    hooks: BTreeMap<Rel, String>,
    /// Files that a configuration leads to.
    files: BTreeMap<Rel, String>,
    /// Where the tree lies in what it belongs to: a repository, or the hidden part of a home.
    within: Option<Rel>,
}

impl Places {
    pub(crate) fn new(own: Own) -> Self {
        Self {
            own,
            ..Self::default()
        }
    }

    /// Looks at what changes and at the directories above, before anything of the same pass is decided.
    pub(crate) fn look(&mut self, overlay: &Overlay, pending: &[Pending]) {
        self.seen.clear();
        for found in pending {
            self.first(overlay, found);
        }
        let mut state = overlay.lock();
        for found in pending {
            self.change(&mut state, found);
            let root: &[u8] = b"";
            for above in path::above(&found.delta.path).chain([root]) {
                if self.seen.insert((found.tree, above.to_vec())) {
                    let git = state.walk(found.tree, &join(above, b".git"));
                    if git.is_ok_and(|git| git.is_some()) {
                        self.repository(&mut state, found.tree, above);
                    }
                }
            }
        }
    }

    /// Whether a change is in a place that runs later.
    pub(crate) fn runs(&self, overlay: &Overlay, policy: &Policy, found: &Pending) -> Runs {
        let delta = &found.delta;
        let own = path::text(&delta.path);
        if policy.executes(&delta.tree, &own).is_some() {
            return Runs::ByTable;
        }
        let Some(tree) = self.trees.get(&found.tree) else {
            return Runs::No;
        };
        let Some(names) = tree.links.names_of(&delta.path) else {
            return Runs::As("a path to which more links lead than can be followed".to_string());
        };
        let is_link = delta
            .new
            .as_ref()
            .is_some_and(|new| new.kind == Kind::Symlink);
        for name in &names {
            let text = path::text(name);
            let through = |place: &str| match name == &delta.path {
                true => place.to_string(),
                false => format!("{place} (through the link {text})"),
            };
            if let Some(place) = policy.executes(&delta.tree, &text) {
                return Runs::As(through(place));
            }
            if is_link && let Some(place) = leads_into(policy, name) {
                return Runs::As(format!("{place} (a link that stands for its directory)"));
            }
            let mut hooks = tree.hooks.iter();
            let hook =
                hooks.find(|(dir, _)| lies_at(name, dir) && (!dir.is_empty() || is_hook(name)));
            if let Some((_, place)) =
                hook.or_else(|| tree.files.iter().find(|(at, _)| lies_at(name, at)))
            {
                return Runs::As(through(place));
            }
            if let Some(within) = &tree.within {
                let whole = path::text(&join(within, name));
                if let Some(place) = policy.executes(&delta.tree, &whole) {
                    return Runs::As(format!(
                        "{place} (the workspace lies at {})",
                        path::text(within)
                    ));
                }
            }
        }
        let mut state = overlay.lock();
        let names_another = matches!(split(&delta.path), Some((_, b".git" | b"commondir")));
        let node = found.node.filter(|_| names_another);
        let text = node.and_then(|(ino, _)| content(&state, ino));
        match repository::part(&mut state, found.tree, delta, text) {
            Ok(part) => part.map_or(Runs::No, Runs::As),
            Err(error) => Runs::As(format!("a place that could not be looked at: {error}")),
        }
    }

    /// The first time that something in a tree is decided: its links, its repositories. The agent is
    /// not kept waiting while a large tree is looked through.
    fn first(&mut self, overlay: &Overlay, found: &Pending) {
        if self.trees.contains_key(&found.tree) {
            return;
        }
        let base = overlay
            .lock()
            .tree(found.tree)
            .map(|of| Arc::clone(&of.base));
        let Ok(base) = base else { return };
        let links = Links::of(&base);
        let repositories = links.repositories.clone();
        let around = if found.delta.tree == WORKSPACE {
            surroundings(base.path(), self.own.home.as_deref())
        } else {
            None
        };
        let (around, within) = around.unzip();
        let tree = Tree {
            links,
            within,
            ..Tree::default()
        };
        self.trees.insert(found.tree, tree);
        let mut state = overlay.lock();
        for dir in repositories {
            self.repository(&mut state, found.tree, &dir);
        }
        let top = around.unwrap_or_else(|| base.path().to_path_buf());
        self.leads(&mut state, found.tree, &top);
    }

    /// What a change adds to what is known: a link, a directory that was moved.
    fn change(&mut self, state: &mut State, found: &Pending) {
        let Some(tree) = self.trees.get_mut(&found.tree) else {
            return;
        };
        let Some(new) = &found.delta.new else { return };
        if let Some(target) = &new.target {
            let Ok(root) = state
                .tree(found.tree)
                .map(|of| of.base.path().to_path_buf())
            else {
                return;
            };
            let read = |path: &[u8]| link_at(state, found.tree, path);
            tree.links.add(&root, read, &found.delta.path, target);
        }
        if let Some(origin) = &found.origin
            && new.kind == Kind::Dir
        {
            tree.links.moved(origin, &found.delta.path);
        }
    }

    fn repository(&mut self, state: &mut State, tree: usize, dir: &[u8]) {
        let Ok(root) = state.tree(tree).map(|of| of.base.path().to_path_buf()) else {
            return;
        };
        self.leads(state, tree, &root.join(path_of(dir)));
    }

    /// Notes what the configuration of a repository leads to within a tree.
    fn leads(&mut self, state: &mut State, tree: usize, top: &Path) {
        let Ok(base) = state.tree(tree).map(|of| Arc::clone(&of.base)) else {
            return;
        };
        let within = |state: &mut State, at: &Path| {
            let read = |path: &[u8]| link_at(state, tree, path);
            resolved(base.path(), read, b"", at.as_os_str().as_encoded_bytes())
        };
        let found = {
            let mut read = |at: &Path| match within(state, at) {
                // As it is staged, and as the owner has it now.
                Some(rel) => {
                    let staged = state.walk(tree, &rel).ok().flatten();
                    let staged = staged.and_then(|ino| content(state, ino));
                    let owners = base.open_file(&rel).ok().and_then(|(file, _)| text(&file));
                    staged.into_iter().chain(owners).collect()
                }
                None => outside(at).into_iter().collect(),
            };
            repository::leads(top, &self.own.git, self.own.home.as_deref(), &mut read)
        };
        let Some(known) = self.trees.get_mut(&tree) else {
            return;
        };
        for dir in found.hooks {
            if let Some(rel) = within(state, &dir) {
                known
                    .hooks
                    .insert(rel, "git hook (core.hooksPath)".to_string());
            }
        }
        for (file, what) in found.files {
            if let Some(rel) = within(state, &file).filter(|rel| !rel.is_empty()) {
                known.files.insert(rel, what);
            }
        }
    }
}

/// What a workspace belongs to that is no repository of its own: the top of the repository around it,
/// or the home directory when it lies in a hidden part of that; and where it lies there.
fn surroundings(root: &Path, home: Option<&Path>) -> Option<(PathBuf, Rel)> {
    use std::os::unix::ffi::OsStrExt as _;
    let root = root.canonicalize().ok()?;
    if root.join(".git").exists() {
        return None;
    }
    let within = |top: &Path| {
        let rel = root.strip_prefix(top).ok()?;
        Some((top.to_path_buf(), rel.as_os_str().as_bytes().to_vec()))
    };
    if let Some(top) = root
        .ancestors()
        .skip(1)
        .find(|dir| dir.join(".git").exists())
    {
        return within(top);
    }
    let home = home?.canonicalize().ok()?;
    within(&home).filter(|(_, rel)| rel.starts_with(b"."))
}

/// A regular file of the host outside of the tree.
fn outside(at: &Path) -> Option<String> {
    let is_file = std::fs::metadata(at).is_ok_and(|meta| meta.is_file());
    is_file
        .then(|| File::open(at).ok())
        .flatten()
        .and_then(|file| text(&file))
}

fn path_of(rel: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(rel))
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
}
