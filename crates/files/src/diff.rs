//! Staged changes as text, for people: unified diffs in git's form, and what is no text in words.

use std::fmt::{self, Write as _};
use std::fs::File;

use serde::Serialize;
use similar::TextDiff;

use crate::attr::Kind;
use crate::base::Base;
use crate::bytes::beginning;
use crate::delta::{Content, Delta, New};
use crate::path::{self, Rel};
use crate::upper::Upper;

/// Larger files are told by size only.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// One staged change.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The tree's name.
    pub tree: String,
    /// Path below its root.
    pub path: String,
    /// `create`, `modify`, `delete` or `attributes`.
    pub operation: String,
    /// Where it lay before, if it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
    /// Kind of file before, with its mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Side>,
    /// Kind of file after, with its mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Side>,
    /// Unified diff of the content, for text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Whether the content is no text, or too large to show.
    pub binary: bool,
}

/// One side of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// `file`, `dir`, `symlink`, `fifo`.
    pub kind: String,
    /// Mode in octal, with the file type as git writes it.
    pub mode: String,
    /// Size of a file in bytes.
    pub bytes: u64,
    /// Where a symbolic link points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Describes one delta.
pub(crate) fn change(delta: &Delta, origin: Option<&Rel>, base: &Base, upper: &Upper) -> Change {
    let before = delta.base.as_ref().map(|v| Side {
        kind: v.kind.name().to_string(),
        mode: git_mode(v.kind, v.mode),
        bytes: if v.kind == Kind::File { v.size } else { 0 },
        target: v.target.as_deref().map(path::text),
    });
    let after = delta.new.as_ref().map(|new| Side {
        kind: new.kind.name().to_string(),
        mode: git_mode(new.kind, new.mode),
        bytes: if new.kind == Kind::File { new.size } else { 0 },
        target: new.target.as_deref().map(path::text),
    });
    let old = match &delta.base {
        Some(v) if v.kind == Kind::File => base
            .open_file(&delta.path)
            .map_or(Text::Binary, |(file, _)| text_of(&file)),
        Some(v) => Text::Words(v.target.as_deref().map(path::text).unwrap_or_default()),
        None => Text::Words(String::new()),
    };
    let new = match &delta.new {
        Some(new) if new.kind == Kind::File => {
            open_new(new, base, upper).map_or(Text::Binary, |file| text_of(&file))
        }
        Some(new) => Text::Words(new.target.as_deref().map(path::text).unwrap_or_default()),
        None => Text::Words(String::new()),
    };
    let (diff, binary) = match (old, new) {
        (Text::Words(old), Text::Words(new)) if old == new => (None, false),
        (Text::Words(old), Text::Words(new)) => {
            let diff = TextDiff::from_lines(&old, &new)
                .unified_diff()
                .context_radius(3)
                .to_string();
            (Some(diff), false)
        }
        _ => (None, true),
    };
    Change {
        tree: delta.tree.clone(),
        path: path::text(&delta.path),
        operation: kernel::Operation::File(delta.operation())
            .name()
            .to_string(),
        moved_from: origin.map(|origin| path::text(origin)),
        before,
        after,
        diff,
        binary,
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.tree == "workspace" {
            self.path.clone()
        } else {
            format!("{}/{}", self.tree, self.path)
        };
        writeln!(f, "diff --kairos a/{path} b/{path}")?;
        if let Some(from) = &self.moved_from {
            writeln!(f, "moved from {from}")?;
        }
        match (&self.before, &self.after) {
            (None, Some(after)) => writeln!(f, "new {} mode {}", after.kind, after.mode)?,
            (Some(before), None) => writeln!(f, "deleted {} mode {}", before.kind, before.mode)?,
            (Some(before), Some(after)) if before.mode != after.mode => {
                writeln!(f, "old {} mode {}", before.kind, before.mode)?;
                writeln!(f, "new {} mode {}", after.kind, after.mode)?;
            }
            _ => {}
        }
        let name = |side: &Option<Side>, letter: char| match side {
            Some(_) => format!("{letter}/{path}"),
            None => "/dev/null".to_string(),
        };
        let (old, new) = (name(&self.before, 'a'), name(&self.after, 'b'));
        if self.binary {
            let bytes = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.bytes);
            let (from, to) = (bytes(&self.before), bytes(&self.after));
            return writeln!(
                f,
                "Binary files {old} and {new} differ ({from} to {to} bytes)"
            );
        }
        match &self.diff {
            Some(diff) => write!(f, "--- {old}\n+++ {new}\n{}", harmless(diff)),
            None => Ok(()),
        }
    }
}

enum Text {
    Words(String),
    Binary,
}

fn text_of(file: &File) -> Text {
    let Ok(bytes) = beginning(file, TEXT_BYTES_MAX + 1) else {
        return Text::Binary;
    };
    let long = bytes.len() as u64 > TEXT_BYTES_MAX;
    if long || bytes.iter().take(8192).any(|b| *b == 0) {
        return Text::Binary;
    }
    Text::Words(String::from_utf8_lossy(&bytes).into_owned())
}

fn open_new(new: &New, base: &Base, upper: &Upper) -> Option<File> {
    match &new.content {
        Content::Data(id) => upper.open_data(*id).ok(),
        Content::Base(from) => base.open_file(from).ok().map(|(file, _)| file),
        Content::None => None,
    }
}

fn git_mode(kind: Kind, mode: u32) -> String {
    let kind = match kind {
        Kind::File => "100",
        Kind::Dir => "040",
        Kind::Symlink => return "120000".to_string(),
        Kind::Fifo => "010",
        Kind::Socket => "140",
        Kind::Device => "020",
    };
    format!("{kind}{mode:03o}")
}

/// Text of the agent for a terminal: control characters are shown, not sent.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {
                let _ = write!(out, "{}", c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_form_of_git() {
        let side = |mode: &str| {
            let kind = "file".to_string();
            Some(Side {
                kind,
                mode: mode.to_string(),
                bytes: 3,
                target: None,
            })
        };
        let mut change = Change {
            tree: "workspace".into(),
            path: "a/b".into(),
            operation: "modify".into(),
            moved_from: None,
            before: side("100644"),
            after: side("100755"),
            diff: Some("@@ -1 +1 @@\n-x\n+\u{1b}[2Jy\n".into()),
            binary: false,
        };
        assert_eq!(
            change.to_string(),
            "diff --kairos a/a/b b/a/b\nold file mode 100644\nnew file mode 100755\n--- a/a/b\n\
             +++ b/a/b\n@@ -1 +1 @@\n-x\n+\\u{1b}[2Jy\n"
        );
        change.binary = true;
        change.before = None;
        assert_eq!(
            change.to_string(),
            "diff --kairos a/a/b b/a/b\nnew file mode 100755\n\
             Binary files /dev/null and b/a/b differ (0 to 3 bytes)\n"
        );
    }
}
