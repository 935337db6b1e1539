//! Names that were one file before a session's commits, so that `kairos undo` makes them one again.

use std::collections::{BTreeMap, BTreeSet};

use crate::attr::{Kind, Version};
use crate::base::Base;
use crate::path::{Rel, join};

/// Device and number of a file.
type Identity = (u64, u64);

/// The names of files that had several.
pub(crate) struct OneFile {
    names: BTreeMap<Identity, BTreeSet<Rel>>,
}

impl OneFile {
    /// Takes them from what lay at the paths that were changed; a name that no commit changed is looked
    /// for in the tree, once for all files that have such a one.
    pub(crate) fn of<'a>(
        base: &Base,
        before: impl Iterator<Item = (&'a Rel, &'a Version)>,
    ) -> Self {
        let mut names: BTreeMap<Identity, BTreeSet<Rel>> = BTreeMap::new();
        let mut links: BTreeMap<Identity, usize> = BTreeMap::new();
        for (path, version) in before.filter(|(_, version)| version.kind != Kind::Dir) {
            let identity = (version.dev, version.ino);
            names.entry(identity).or_default().insert(path.clone());
            let most = links.entry(identity).or_default();
            *most = (*most).max(usize::try_from(version.links).unwrap_or(usize::MAX));
        }
        let missing: BTreeSet<Identity> = links
            .into_iter()
            .filter(|(identity, links)| names.get(identity).is_some_and(|it| it.len() < *links))
            .map(|(identity, _)| identity)
            .collect();
        if !missing.is_empty() {
            base.each_file(|dir, name, _| {
                let path = join(dir, name);
                let Ok(stat) = base.stat(&path) else { return };
                let identity = (stat.st_dev, stat.st_ino);
                if missing.contains(&identity) {
                    names.entry(identity).or_default().insert(path);
                }
            });
        }
        names.retain(|_, names| names.len() > 1);
        Self { names }
    }

    /// The other names of a file.
    pub(crate) fn others(&self, path: &Rel, version: &Version) -> Vec<Rel> {
        let names = self.names.get(&(version.dev, version.ino));
        names
            .into_iter()
            .flatten()
            .filter(|other| *other != path)
            .cloned()
            .collect()
    }
}
