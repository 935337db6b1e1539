//! What an undo leaves in a git repository: objects that something in it may refer to stay. Which ones
//! do is git's affair, and reading its index, refs, logs and packs is not ours; so all of a session's
//! objects in a repository stay as soon as anything else in it is not as it was before the session.

use std::collections::BTreeSet;

use rustix::fs::{AtFlags, statat};

use crate::attr::{Kind, Version};
use crate::base::Base;
use crate::path::{self, Rel, components, join};

/// Deeper directories in a repository are not looked at; there are none.
const DEPTH_MAX: usize = 32;

/// The repository (its `.git`) whose objects a path is one of, or is a directory of.
pub(crate) fn of_object(path: &[u8]) -> Option<Rel> {
    let (repository, below) = parts(path)?;
    components(below)
        .any(|name| name == b"objects")
        .then_some(repository)
}

/// The repository that a path lies in, or is.
pub(crate) fn of(path: &[u8]) -> Option<Rel> {
    parts(path).map(|(repository, _)| repository)
}

/// What in a repository is neither of the session nor older than its first object there, if anything
/// is: it may refer to the session's objects.
pub(crate) fn newer(
    base: &Base,
    repository: &Rel,
    objects: &[Version],
    ours: &BTreeSet<&Rel>,
) -> Option<Rel> {
    let since = objects.iter().map(|object| object.ctime).min()?;
    let mut dirs = vec![(repository.clone(), 0)];
    while let Some((dir, depth)) = dirs.pop() {
        // What cannot be looked at may be anything.
        let (Ok(names), Ok(at)) = (base.list(&dir), base.dir(&dir)) else {
            return Some(dir);
        };
        for (name, _) in names {
            let path = join(&dir, &name);
            let Ok(stat) = statat(&*at, &*name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let now = Version::of(&stat);
            if now.kind == Kind::Dir {
                if depth < DEPTH_MAX {
                    dirs.push((path, depth + 1));
                }
            } else if now.ctime > since && !ours.contains(&path) {
                return Some(path);
            }
        }
    }
    None
}

fn parts(path: &[u8]) -> Option<(Rel, &[u8])> {
    let mut repository = Rel::new();
    for name in components(path) {
        repository = join(&repository, name);
        if name.ends_with(b".git") {
            let below = path.get(repository.len() + 1..).unwrap_or_default();
            return Some((repository, below));
        }
    }
    None
}

/// Why an object stays.
pub(crate) fn stays(what: &[u8]) -> String {
    format!(
        "`{}`, which is left as it is, may refer to it",
        path::text(what)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_their_repositories() {
        let of = |path: &str| of_object(path.as_bytes()).map(|it| path::text(&it));
        assert_eq!(of("a/.git/objects/ab/cd").as_deref(), Some("a/.git"));
        assert_eq!(of(".git/objects").as_deref(), Some(".git"));
        assert_eq!(of(".git/modules/m/objects/pack/p").as_deref(), Some(".git"));
        assert_eq!(of("bare.git/objects/ab").as_deref(), Some("bare.git"));
        assert_eq!(of(".git/index"), None);
        assert_eq!(of("objects/ab/cd"), None);
    }
}
