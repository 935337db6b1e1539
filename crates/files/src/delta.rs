//! One net change of one path: what the agent's view shows there, over what the base had.

use std::collections::BTreeMap;

use kernel::value::{Gated, Kind as ValueKind};
use kernel::{Carried, Channel, Class, Digest, Effect, FileOp, HoldId, Object, Operation, Payload};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::attr::{Attr, Kind, Time, Version, Xattrs};
use crate::path::{self, Rel};

/// One net change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The tree's name.
    pub tree: String,
    /// Path below its root.
    pub path: Rel,
    /// What the base had; nothing when the name is new.
    pub base: Option<Version>,
    /// What shall be there; nothing when the name goes away.
    pub new: Option<New>,
}

/// What shall be at a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct New {
    /// Kind of file.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner on the host.
    pub uid: u32,
    /// Group on the host.
    pub gid: u32,
    /// Last change of the content.
    pub mtime: Time,
    /// Where a symbolic link points.
    pub target: Option<Vec<u8>>,
    /// Where a regular file's bytes come from.
    pub content: Content,
    /// Digest of a regular file's bytes.
    pub digest: [u8; 32],
    /// Their number.
    pub size: u64,
    /// `user.` attributes, when the agent set them; otherwise the base file's are kept.
    pub xattrs: Option<Xattrs>,
    /// The agent set the time of change by itself, so that it counts even if nothing else differs.
    pub timed: bool,
    /// Other names of the same file in the view.
    pub links: Vec<Rel>,
}

/// Where the bytes come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// It has none.
    None,
    /// Staged, as `data/N`.
    Data(u64),
    /// Another place of the base, unchanged (a rename).
    Base(Rel),
    /// What an earlier commit replaced, as `undo/N`.
    Kept(u64),
}

impl New {
    /// A new directory.
    pub(crate) fn dir(attr: &Attr) -> Self {
        Self {
            kind: Kind::Dir,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            mtime: attr.mtime,
            target: None,
            content: Content::None,
            digest: [0; 32],
            size: 0,
            xattrs: None,
            timed: false,
            links: Vec::new(),
        }
    }
}

impl Delta {
    /// What it does.
    pub fn operation(&self) -> FileOp {
        match (&self.base, &self.new) {
            (None, _) => FileOp::Create,
            (Some(_), None) => FileOp::Delete,
            (Some(base), Some(new)) => {
                let same = base.kind == new.kind
                    && match new.kind {
                        Kind::File => base.digest == Some(new.digest),
                        Kind::Symlink => base.target == new.target,
                        _ => true,
                    };
                if same {
                    FileOp::Attributes
                } else {
                    FileOp::Modify
                }
            }
        }
    }

    /// The bytes a permit speaks of.
    pub fn payload(&self) -> Payload {
        match &self.new {
            Some(new) => match (&new.target, new.kind) {
                (Some(target), _) => Payload {
                    digest: Digest::of(target),
                    bytes: target.len() as u64,
                },
                (None, Kind::File) => Payload {
                    digest: Digest(new.digest),
                    bytes: new.size,
                },
                _ => Payload {
                    digest: Digest::of(b""),
                    bytes: 0,
                },
            },
            None => Payload {
                digest: Digest::of(b""),
                bytes: 0,
            },
        }
    }

    /// The effect it is, to be decided.
    pub fn effect(&self, saw: Vec<HoldId>) -> Effect {
        let mut fields = BTreeMap::new();
        let mut gated = Vec::new();
        if let Some(new) = &self.new {
            fields.insert("kind".to_string(), new.kind.name().to_string());
            fields.insert("mode".to_string(), format!("{:04o}", new.mode));
            if let Some(target) = &new.target {
                let target = path::text(target);
                if leads_out(&self.path, &target) {
                    gated.push(Gated::new("target", ValueKind::Path, target.clone()));
                }
                fields.insert("target".to_string(), target);
            }
            if let Some(xattrs) = &new.xattrs {
                let mut hash = Sha256::new();
                for (name, value) in xattrs {
                    for part in [name, value] {
                        hash.update((part.len() as u64).to_le_bytes());
                        hash.update(part);
                    }
                }
                fields.insert("xattrs".to_string(), Digest(hash.finalize().into()).hex());
            }
            if new.timed {
                let mtime = format!("{}.{:09}", new.mtime.secs, new.mtime.nanos);
                fields.insert("mtime".to_string(), mtime);
            }
            if !new.links.is_empty() {
                let links: Vec<String> = new.links.iter().map(|link| path::text(link)).collect();
                fields.insert("same file as".to_string(), links.join(" "));
            }
        }
        Effect {
            channel: Channel::File,
            operation: Operation::File(self.operation()),
            object: Object::Location {
                tree: self.tree.clone(),
                path: path::text(&self.path),
            },
            class: Class::Stageable,
            gated,
            arguments: Vec::new(),
            carries: Carried::nothing(),
            payload: self.payload(),
            base: self.base.as_ref().map(Version::manifest_digest),
            saw,
            fields,
            about: self.about(),
        }
    }

    /// Whether two deltas ask for the same outcome over the same base.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let outcome = |new: &New| {
            (
                new.kind,
                new.mode,
                new.uid,
                new.gid,
                new.digest,
                new.target.clone(),
                new.xattrs.clone(),
                new.timed.then_some(new.mtime),
                new.links.clone(),
            )
        };
        self.path == other.path
            && self.new.as_ref().map(outcome) == other.new.as_ref().map(outcome)
            && self.base.as_ref().map(Version::manifest_digest)
                == other.base.as_ref().map(Version::manifest_digest)
    }

    fn about(&self) -> String {
        match &self.new {
            None => match &self.base {
                Some(base) => format!("removes a {}", base.kind.name()),
                None => "removes nothing".to_string(),
            },
            Some(new) => match new.kind {
                Kind::File => format!("{} bytes, mode {:04o}", new.size, new.mode),
                Kind::Symlink => "a symbolic link".to_string(),
                kind => format!("a {}, mode {:04o}", kind.name(), new.mode),
            },
        }
    }
}

/// Whether a link at `path` may point out of its tree: absolute, with more `..` than it is deep,
/// or with a `..` behind a name (which may be a link itself, so nothing can be said).
fn leads_out(path: &[u8], target: &str) -> bool {
    let depth = path::components(path).count().saturating_sub(1);
    let ups = target.split('/').filter(|c| *c == "..").count();
    let mut down = false;
    let up_after_down = target
        .split('/')
        .filter(|c| !c.is_empty() && *c != ".")
        .any(|component| {
            down |= component != "..";
            down && component == ".."
        });
    target.starts_with('/') || up_after_down || ups > depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out() {
        for (at, target, expect) in [
            ("a", "b", false),
            ("a", "../b", true),
            ("d/a", "../b", false),
            ("d/a", "../../b", true),
            ("d/a", "x/../../../b", true),
            ("a", "/etc/passwd", true),
            ("a", "./b/../c", true),
            ("d/e/a", "../../b", false),
        ] {
            assert_eq!(leads_out(at.as_bytes(), target), expect, "{at} -> {target}");
        }
    }
}
