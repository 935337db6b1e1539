//! The names of one directory of the view.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::attr::Kind;
use crate::tree::Ino;

/// A name in a directory.
pub(crate) type Name = Arc<[u8]>;

/// Names of a directory, read from the base once and kept from then on.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) loaded: bool,
    names: HashMap<Name, Slot>,
    order: BTreeMap<u64, Name>,
    next_cookie: u64,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Position for `readdir`; only a rename hands it on.
    pub(crate) cookie: u64,
    /// Kind, if known without asking the base.
    pub(crate) kind: Option<Kind>,
    /// The node, once it was needed.
    pub(crate) ino: Option<Ino>,
}

impl Listing {
    /// Of a directory that the base has nothing of.
    pub(crate) fn of_new() -> Self {
        Self {
            loaded: true,
            ..Self::default()
        }
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Slot> {
        self.names.get(name).copied()
    }

    pub(crate) fn set(&mut self, name: &[u8], kind: Option<Kind>, ino: Option<Ino>) {
        self.set_at(name, kind, ino, None);
    }

    /// The same; a new name takes a position that another has just left, so that whoever renames
    /// what they list comes to an end.
    pub(crate) fn set_at(
        &mut self,
        name: &[u8],
        kind: Option<Kind>,
        ino: Option<Ino>,
        left: Option<u64>,
    ) {
        if let Some(slot) = self.names.get_mut(name) {
            (slot.kind, slot.ino) = (kind, ino);
            return;
        }
        let cookie = match left.filter(|left| !self.order.contains_key(left)) {
            Some(left) => left,
            None => {
                self.next_cookie += 1;
                self.next_cookie
            }
        };
        let name: Name = name.into();
        self.order.insert(cookie, Arc::clone(&name));
        self.names.insert(name, Slot { cookie, kind, ino });
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Slot> {
        let slot = self.names.remove(name)?;
        self.order.remove(&slot.cookie);
        Some(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names after a position, in a stable order.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Name)> {
        self.order
            .range(cookie + 1..)
            .map(|(cookie, name)| (*cookie, name))
    }
}
