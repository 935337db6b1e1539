//! Other names of a path. A symbolic link anywhere in a tree makes what it points to reachable under
//! its own name, and a place that runs later may be such a name: `.git/hooks` may be a link to
//! `tools/hooks`. The links of a tree are few beside its files, so they are looked for once, and
//! every one of them is known by what it points to.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::path::Path;

use crate::attr::Kind;
use crate::base::Base;
use crate::path::{Rel, components, join, lies_at, split};

/// Names that one path may have; beyond that they are not followed, and it is held.
const NAMES_MAX: usize = 1024;
/// Links that one name may lead through.
const HOPS_MAX: usize = 4;
/// Links that one way to a target may lead through, as in the kernel.
const LOOKUPS_MAX: usize = 40;
/// Directories of which there are many and in which nobody keeps such links.
const PASSED_OVER: [&[u8]; 4] = [b"node_modules", b"target", b".venv", b"__pycache__"];

/// The links of one tree, and the directories that have a `.git`.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Links by the path that they lead to.
    by_target: HashMap<Rel, Vec<Rel>>,
    /// Top directories of repositories.
    pub(crate) repositories: BTreeSet<Rel>,
}

impl Links {
    /// Looks through the owner's tree. What cannot be listed has nothing that could be committed to.
    pub(crate) fn of(base: &Base) -> Self {
        let mut found = Self::default();
        let mut ahead = vec![Rel::new()];
        while let Some(dir) = ahead.pop() {
            let Ok(names) = base.list(&dir) else {
                continue;
            };
            let in_git = split(&dir).map_or(dir.as_slice(), |(_, name)| name) == b".git";
            for (name, kind) in names {
                let path = join(&dir, &name);
                if name == b".git" {
                    found.repositories.insert(dir.clone());
                }
                match kind.or_else(|| base.version(&path).ok().flatten().map(|v| v.kind)) {
                    Some(Kind::Symlink) => {
                        if let Ok(target) = base.readlink(&path) {
                            let read = |path: &[u8]| base.readlink(path).ok();
                            found.add(base.path(), read, &path, &target);
                        }
                    }
                    // Of a repository's own files only hooks are ever links.
                    Some(Kind::Dir) if in_git && name != b"hooks" => {}
                    Some(Kind::Dir) if PASSED_OVER.contains(&name.as_slice()) => {}
                    Some(Kind::Dir) => ahead.push(path),
                    _ => {}
                }
            }
        }
        found
    }

    /// A link that is there, or is to be; `read` reads the links on its way.
    pub(crate) fn add(
        &mut self,
        root: &Path,
        read: impl FnMut(&[u8]) -> Option<Vec<u8>>,
        link: &[u8],
        target: &[u8],
    ) {
        let dir = split(link).map_or(&b""[..], |(dir, _)| dir);
        if let Some(to) = resolved(root, read, dir, target) {
            let known = self.by_target.entry(to).or_default();
            if !known.iter().any(|known| known == link) {
                known.push(link.to_vec());
            }
        }
    }

    /// A directory has another name; what is in it keeps the old one as well.
    pub(crate) fn moved(&mut self, from: &[u8], to: &[u8]) {
        let again = |path: &Rel| -> Option<Rel> {
            lies_at(path, from).then(|| [to, path.get(from.len()..).unwrap_or_default()].concat())
        };
        for links in self.by_target.values_mut() {
            let more: Vec<Rel> = links.iter().filter_map(again).collect();
            links.extend(more);
        }
        let more: Vec<Rel> = self.repositories.iter().filter_map(again).collect();
        self.repositories.extend(more);
    }

    /// A path and all its other names; nothing when there are too many to be followed.
    pub(crate) fn names_of(&self, path: &[u8]) -> Option<Vec<Rel>> {
        let mut names = vec![path.to_vec()];
        if self.by_target.is_empty() {
            return Some(names);
        }
        let mut known: HashSet<Rel> = names.iter().cloned().collect();
        // A name, the links that it leads through, whether one of them led to above itself.
        let mut ahead = VecDeque::from([(path.to_vec(), 0, false)]);
        while let Some((name, hops, turned)) = ahead.pop_front() {
            if hops == HOPS_MAX {
                continue;
            }
            for (head, rest) in heads(&name) {
                for link in self.by_target.get(head).into_iter().flatten() {
                    let turns = lies_at(link, head);
                    let other = match rest {
                        [] => link.clone(),
                        rest => join(link, rest),
                    };
                    if turns && turned || !known.insert(other.clone()) {
                        continue;
                    }
                    if names.len() == NAMES_MAX {
                        return None;
                    }
                    names.push(other.clone());
                    ahead.push_back((other, hops + 1, turned || turns));
                }
            }
        }
        Some(names)
    }
}

/// Every beginning of a path, from itself to the root, and what follows.
fn heads(path: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let slashes = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/');
    let between = slashes.filter_map(|(at, _)| Some((path.get(..at)?, path.get(at + 1..)?)));
    std::iter::once((path, &b""[..]))
        .chain(between)
        .chain(std::iter::once((&b""[..], path)))
}

/// Where a path as written in a directory of a tree leads, through links; nothing when that is out
/// of the tree. A name that is not there leads where it would be.
pub(crate) fn resolved(
    root: &Path,
    mut read: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    dir: &[u8],
    written: &[u8],
) -> Option<Rel> {
    use std::os::unix::ffi::OsStrExt as _;
    if written.first() == Some(&b'~') {
        return None;
    }
    let root: Vec<&[u8]> = components(root.as_os_str().as_bytes()).collect();
    let in_tree = |at: &[Vec<u8>]| -> Option<Rel> {
        let below = at.get(root.len()..)?;
        let within = root.iter().zip(at).all(|(a, b)| a == b);
        within.then(|| below.join(&b'/'))
    };
    let owned = |path: &[u8]| -> Vec<Vec<u8>> { components(path).map(<[u8]>::to_vec).collect() };
    let mut at: Vec<Vec<u8>> = Vec::new();
    if written.first() != Some(&b'/') {
        at.extend(root.iter().map(|part| part.to_vec()));
        at.extend(owned(dir));
    }
    let mut ahead: VecDeque<Vec<u8>> = owned(written).into();
    let mut lookups = 0;
    while let Some(part) = ahead.pop_front() {
        match part.as_slice() {
            b"." => {}
            b".." => {
                at.pop();
            }
            _ => {
                at.push(part);
                let target = in_tree(&at)
                    .filter(|path| !path.is_empty())
                    .and_then(|path| read(&path));
                let Some(target) = target else { continue };
                lookups += 1;
                if lookups > LOOKUPS_MAX {
                    return None;
                }
                if target.first() == Some(&b'/') {
                    at.clear();
                } else {
                    at.pop();
                }
                for part in owned(&target).into_iter().rev() {
                    ahead.push_front(part);
                }
            }
        }
    }
    in_tree(&at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(names: Option<Vec<Rel>>) -> Vec<String> {
        let names = names.unwrap_or_default();
        let mut names: Vec<String> = names.iter().map(|name| crate::path::text(name)).collect();
        names.sort();
        names
    }

    fn links(pairs: &[(&str, &str)]) -> Links {
        let pairs: Vec<(&[u8], &[u8])> = pairs
            .iter()
            .map(|(a, b)| (a.as_bytes(), b.as_bytes()))
            .collect();
        let mut links = Links::default();
        for (link, target) in &pairs {
            let read = |path: &[u8]| {
                let found = pairs.iter().find(|(link, _)| *link == path);
                found.map(|(_, target)| target.to_vec())
            };
            links.add(Path::new("/w/s"), read, link, target);
        }
        links
    }

    #[test]
    fn a_path_has_the_names_of_the_links_to_it() {
        let links = links(&[
            (".git/hooks", "../githooks"),
            ("githooks", "real"),
            (".github", "/w/s/ci"),
            ("ci/workflows", "../../s/shared"),
            ("out", "../../etc"),
            ("loop", "."),
        ]);
        assert_eq!(
            text(links.names_of(b"real/pre-commit")),
            [
                ".git/hooks/pre-commit",
                "githooks/pre-commit",
                "loop/.git/hooks/pre-commit",
                "loop/githooks/pre-commit",
                "loop/real/pre-commit",
                "real/pre-commit",
            ]
        );
        let names = text(links.names_of(b"shared/a.yml"));
        for name in ["ci/workflows/a.yml", ".github/workflows/a.yml"] {
            assert!(names.contains(&name.to_string()), "{name}: {names:?}");
        }
        assert_eq!(links.names_of(b"out/x").map(|names| names.len()), Some(2));
    }

    #[test]
    fn too_many_names_are_not_followed() {
        let names: Vec<String> = (0..2000).map(|n| format!("l{n}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "real")).collect();
        assert_eq!(links(&pairs).names_of(b"real"), None);
    }

    #[test]
    fn paths_are_resolved() {
        for (dir, written, expect) in [
            ("", "h", Some("h")),
            ("a/b", "../h/./x", Some("a/h/x")),
            ("a", "../..", None),
            ("a", "../../s/h", Some("h")),
            ("a", "..", Some("")),
            ("a", "/abs", None),
            ("a", "/w/s/abs", Some("abs")),
            ("a", "~/h", None),
            ("a", "l/x", Some("other/x")),
            ("", "a/turn", None),
        ] {
            let read = |path: &[u8]| match path {
                b"a/l" => Some(b"../other".to_vec()),
                b"a/turn" => Some(b"turn".to_vec()),
                _ => None,
            };
            let found = resolved(Path::new("/w/s"), read, dir.as_bytes(), written.as_bytes());
            let found = found.as_deref();
            assert_eq!(found, expect.map(str::as_bytes), "{dir} {written}");
        }
    }
}
