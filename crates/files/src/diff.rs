//! Staged changes as text, for people and for `git apply`: unified diffs in git's form. What git has
//! no form for is said in lines that start with `#`, which patch programs skip.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs::File;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::SerializeMap as _;
use similar::TextDiff;

use crate::acl;
use crate::attr::Kind;
use crate::base::Base;
use crate::bytes::beginning;
use crate::delta::{Content, Delta, New};
use crate::path::{self, Rel};
use crate::runs::{self, Runs};
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
    /// `create`, `modify`, `delete`, `attributes`, or `rename` when it was moved here.
    pub operation: String,
    /// Where it lay before, if it was moved, or what it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
    /// Kind of file before, with its mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Side>,
    /// Kind of file after, with its mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Side>,
    /// How much of the content stayed, in percent, if it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<u8>,
    /// Unified diff of the content, for text.
    #[serde(flatten)]
    pub diff: Option<Patch>,
    /// Whether the content is no text, or too large to show.
    pub binary: bool,
    /// What kind of place it is, when what lies there runs later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What in it runs that did not before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Runs>,
    /// Access lists and `user.` attributes that are set, changed or removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// Other names of the same file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Whether the owner changed it, too, since the agent saw it.
    pub conflict: bool,
}

/// A unified diff, whose lines are in whatever code the files are. As JSON: `diff`, and where that is not
/// all, because it is not UTF-8, the bytes as `diff_base64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch(Vec<u8>);

impl Serialize for Patch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = String::from_utf8_lossy(&self.0);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("diff", &text)?;
        // Where nothing had to be replaced, it is the bytes themselves.
        if let Cow::Owned(_) = text {
            map.serialize_entry("diff_base64", &STANDARD.encode(&self.0))?;
        }
        map.end()
    }
}

/// An attribute that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attribute {
    /// `access list`, `default access list` (what a directory passes on), or its own name.
    pub name: String,
    /// Its value before; a list in the text form of `setfacl`, what is no text with replacements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its value after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
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
    // What was moved is compared with what it was where it came from.
    let moved = origin.filter(|_| delta.base.is_none());
    let old_path = moved.unwrap_or(&delta.path);
    let old_version = match moved {
        Some(origin) => base.version(origin).ok().flatten(),
        None => delta.base.clone(),
    };
    let before = old_version.as_ref().map(|v| Side {
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
    let old = match &old_version {
        Some(v) if v.kind == Kind::File => upper
            .open_base(old_path, v)
            .or_else(|| base.open_file(old_path).ok().map(|(file, _)| file))
            .map_or(Text::Binary, |file| text_of(&file)),
        Some(v) => Text::Words(v.target.clone().unwrap_or_default()),
        None => Text::Words(Vec::new()),
    };
    let new = match &delta.new {
        Some(new) if new.kind == Kind::File => {
            open_new(new, base, upper).map_or(Text::Binary, |file| text_of(&file))
        }
        Some(new) => Text::Words(new.target.clone().unwrap_or_default()),
        None => Text::Words(Vec::new()),
    };
    let found = match (&old, &new) {
        (old, Text::Words(new)) => {
            let executable = delta.new.as_ref().is_some_and(|new| new.mode & 0o111 != 0);
            let old = match old {
                Text::Words(old) if old_version.is_some() && moved.is_none() => {
                    Some(String::from_utf8_lossy(old))
                }
                _ => None,
            };
            let new = String::from_utf8_lossy(new);
            let is_file = delta.new.as_ref().is_some_and(|new| new.kind == Kind::File);
            let path = path::text(&delta.path);
            runs::added(&path, old.as_deref(), is_file.then_some(&*new), executable)
        }
        _ => Vec::new(),
    };
    let mut similarity = None;
    let same_bytes = matches!((&old_version, &delta.new), (Some(old), Some(new))
        if old.kind == Kind::File && new.kind == Kind::File && matches!(&new.content, Content::Base(from) if from == old_path));
    let (diff, binary) = match (old, new) {
        _ if same_bytes => {
            similarity = Some(100);
            (None, false)
        }
        (Text::Words(old), Text::Words(new)) if old == new => {
            similarity = Some(100);
            (None, false)
        }
        (Text::Words(old), Text::Words(new)) => {
            let (diff, ratio) = compared(&old, &new);
            // Never 100 for what is not the same.
            similarity = Some((ratio * 100.0).clamp(0.0, 99.0) as u8);
            (Some(Patch(diff)), false)
        }
        _ => (None, true),
    };
    Change {
        tree: delta.tree.clone(),
        path: path::text(&delta.path),
        operation: kernel::Operation::File(delta.operation())
            .name()
            .to_string(),
        moved_from: moved.map(|origin| path::text(origin)),
        similarity: similarity.filter(|_| moved.is_some()),
        before,
        after,
        diff,
        binary,
        place: None,
        runs: found,
        attributes: attributes(delta),
        links: delta
            .new
            .iter()
            .flat_map(|new| &new.links)
            .map(|link| path::text(link))
            .collect(),
        conflict: owner_changed(delta, base),
    }
}

/// What a delta does to access lists and attributes.
fn attributes(delta: &Delta) -> Vec<Attribute> {
    let Some((new, after)) = delta
        .new
        .as_ref()
        .and_then(|new| Some((new, new.xattrs.as_ref()?)))
    else {
        return Vec::new();
    };
    let old = delta.base.as_ref();
    let before = old.and_then(|old| old.xattrs.as_ref());
    let names: BTreeSet<&Vec<u8>> = before
        .into_iter()
        .chain([after])
        .flat_map(|all| all.keys())
        .collect();
    let changed = |name: &&Vec<u8>| before.and_then(|all| all.get(*name)) != after.get(*name);
    names
        .into_iter()
        .filter(changed)
        .map(|name| {
            let told = |value: &Vec<u8>, mode| acl::shown(name, value, mode);
            let was = before
                .and_then(|all| all.get(name))
                .map(|value| told(value, old.map_or(0, |old| old.mode)));
            let is = after.get(name).map(|value| told(value, new.mode));
            Attribute {
                name: was
                    .as_ref()
                    .or(is.as_ref())
                    .map(|(name, _)| name.clone())
                    .unwrap_or_default(),
                before: was.map(|(_, value)| value),
                after: is.map(|(_, value)| value),
            }
        })
        .collect()
}

/// Joins what was taken away at one place and came at another to one change.
pub(crate) fn pair(changes: Vec<Change>) -> Vec<Change> {
    let deleted: BTreeSet<(String, String)> = changes
        .iter()
        .filter(|change| change.operation == "delete")
        .map(|change| (change.tree.clone(), change.path.clone()))
        .collect();
    let mut taken = BTreeSet::new();
    let mut paired = Vec::new();
    for mut change in changes {
        let origin = change
            .moved_from
            .clone()
            .map(|from| (change.tree.clone(), from));
        if let Some(origin) = origin.filter(|origin| deleted.contains(origin))
            && taken.insert(origin)
        {
            change.operation = "rename".to_string();
        }
        paired.push(change);
    }
    paired.retain(|change| {
        change.operation != "delete" || !taken.contains(&(change.tree.clone(), change.path.clone()))
    });
    paired
}

impl Side {
    /// Git knows of a mode only whether the owner may execute it.
    fn is_same_to_git(&self, other: &Self) -> bool {
        let runs = |side: &Self| {
            let mode = u32::from_str_radix(&side.mode, 8).unwrap_or(0);
            mode & 0o100 != 0
        };
        self.kind == other.kind && runs(self) == runs(other) && self.target == other.target
    }
}

/// For people: what could do something to a terminal is shown by its number.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Out::new(Form::Shown);
        self.tell(&mut out)?;
        f.write_str(&String::from_utf8_lossy(&out.bytes))
    }
}

/// What is told, and how content is.
struct Out {
    bytes: Vec<u8>,
    form: Form,
}

#[derive(PartialEq, Eq)]
enum Form {
    /// As it is, for a program.
    AsItIs,
    /// For a terminal.
    Shown,
}

impl Out {
    fn new(form: Form) -> Self {
        let bytes = Vec::new();
        Self { bytes, form }
    }

    /// Content of a file.
    fn content(&mut self, text: &[u8]) {
        if self.form == Form::AsItIs {
            return self.bytes.extend_from_slice(text);
        }
        for chunk in text.utf8_chunks() {
            self.bytes.extend(harmless(chunk.valid()).into_bytes());
            for byte in chunk.invalid() {
                self.bytes.extend(format!("\\x{byte:02x}").into_bytes());
            }
        }
    }
}

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Change {
    /// The change as `git apply` takes it: content byte for byte.
    pub fn patch(&self) -> Vec<u8> {
        let mut out = Out::new(Form::AsItIs);
        // Writing to memory does not fail.
        let _ = self.tell(&mut out);
        out.bytes
    }

    fn tell(&self, f: &mut Out) -> fmt::Result {
        self.remarks(f)?;
        let (old, new) = match (&self.before, &self.after) {
            (Some(before), Some(after)) if before.kind != after.kind => {
                // Git tells a change of kind as a removal and a creation.
                self.block(f, Some(before), None)?;
                return self.block(f, None, Some(after));
            }
            (old, new) => (old.as_ref(), new.as_ref()),
        };
        let (moved, before) = match (self.operation.as_str(), &self.moved_from) {
            ("rename", Some(from)) => (Some(("rename", from)), old),
            (_, Some(from)) => (Some(("copy", from)), old),
            _ => (None, old),
        };
        match moved {
            Some((word, from)) => self.moved(f, word, from, before, new),
            None => self.block(f, old, new),
        }
    }

    /// What git has no form for.
    fn remarks(&self, f: &mut Out) -> fmt::Result {
        let path = self.shown(&self.path);
        if self.conflict {
            writeln!(f, "# conflict: {path} was changed by its owner, too")?;
        }
        if let Some(place) = &self.place {
            writeln!(
                f,
                "# runs later: {path} is a place for: {}",
                harmless(place)
            )?;
        }
        for runs in &self.runs {
            let (entry, command) = (harmless(&runs.entry), harmless(&runs.command));
            writeln!(f, "# runs: {entry}: {command}")?;
        }
        for attribute in &self.attributes {
            let is_list = attribute.name.ends_with("access list");
            let value = |value: &Option<String>| match value {
                Some(list) if is_list => harmless(list),
                Some(value) => format!("\"{}\"", short(&harmless(value))),
                None => "none".to_string(),
            };
            let name = harmless(&attribute.name);
            let (before, after) = (value(&attribute.before), value(&attribute.after));
            writeln!(f, "# {name} of {path}: {after} (before: {before})")?;
        }
        for link in &self.links {
            writeln!(f, "# same file as: {}", self.shown(link))?;
        }
        Ok(())
    }

    /// A change at one place, or one half of a change of kind.
    fn block(&self, f: &mut Out, old: Option<&Side>, new: Option<&Side>) -> fmt::Result {
        let path = self.shown(&self.path);
        let known = |side: &Side| matches!(side.kind.as_str(), "file" | "symlink");
        if !old.or(new).is_some_and(known) {
            let word = match (old, new) {
                (None, _) => "new",
                (_, None) => "deleted",
                _ => "changed",
            };
            let side = new.or(old);
            let (kind, mode) = side.map_or(("", ""), |side| (&side.kind, &side.mode));
            return writeln!(f, "# {word} {kind} {path}, mode {mode}");
        }
        if let (Some(old), Some(new), None, false) = (old, new, &self.diff, self.binary)
            && old.is_same_to_git(new)
        {
            // Nothing to apply is an error to git.
            if old.mode != new.mode {
                writeln!(f, "# mode of {path}: {} (before: {})", new.mode, old.mode)?;
            } else if self.attributes.is_empty() {
                writeln!(f, "# attributes or times of {path}")?;
            }
            return Ok(());
        }
        let (a, b) = (self.name('a', &self.path), self.name('b', &self.path));
        writeln!(f, "diff --git {a} {b}")?;
        match (old, new) {
            (None, Some(new)) => writeln!(f, "new file mode {}", new.mode)?,
            (Some(old), None) => writeln!(f, "deleted file mode {}", old.mode)?,
            (Some(old), Some(new)) if old.mode != new.mode => {
                writeln!(f, "old mode {}", old.mode)?;
                writeln!(f, "new mode {}", new.mode)?;
            }
            _ => {}
        }
        let a = if old.is_some() {
            a
        } else {
            "/dev/null".to_string()
        };
        let b = if new.is_some() {
            b
        } else {
            "/dev/null".to_string()
        };
        // In a change of kind each half has a content of its own.
        let halved =
            self.before.is_some() && self.after.is_some() && old.is_none() != new.is_none();
        if halved {
            return self.half(f, &a, &b, old, new);
        }
        self.content(f, &a, &b)
    }

    fn half(
        &self,
        f: &mut Out,
        a: &str,
        b: &str,
        old: Option<&Side>,
        new: Option<&Side>,
    ) -> fmt::Result {
        let Some(diff) = &self.diff else {
            return writeln!(f, "Binary files {a} and {b} differ");
        };
        let sign = if old.is_some() { '-' } else { '+' };
        let symlink = old.or(new).is_some_and(|side| side.kind == "symlink");
        let body: Vec<&[u8]> = lines(&diff.0)
            .into_iter()
            .filter_map(|line| line.strip_suffix(b"\n").unwrap_or(line).split_first())
            .filter(|(first, _)| **first == sign as u8 || (**first == b' ' && !symlink))
            .map(|(_, rest)| rest)
            .collect();
        let count = body.len();
        if count == 0 {
            return Ok(());
        }
        let range = if old.is_some() {
            format!("@@ -1,{count} +0,0 @@")
        } else {
            format!("@@ -0,0 +1,{count} @@")
        };
        writeln!(f, "--- {a}\n+++ {b}\n{range}")?;
        for line in body {
            write!(f, "{sign}")?;
            f.content(line);
            writeln!(f)?;
        }
        if symlink {
            writeln!(f, "\\ No newline at end of file")?;
        }
        Ok(())
    }

    fn moved(
        &self,
        f: &mut Out,
        word: &str,
        from: &str,
        old: Option<&Side>,
        new: Option<&Side>,
    ) -> fmt::Result {
        let known = |side: &Side| matches!(side.kind.as_str(), "file" | "symlink");
        if !new.is_some_and(known) {
            let kind = new.map_or("", |side| &side.kind);
            let (from, to) = (self.shown(from), self.shown(&self.path));
            return writeln!(f, "# {word} {kind} {from} to {to}");
        }
        let (a, b) = (self.name('a', from), self.name('b', &self.path));
        writeln!(f, "diff --git {a} {b}")?;
        if let (Some(old), Some(new)) = (old, new)
            && old.mode != new.mode
        {
            writeln!(f, "old mode {}\nnew mode {}", old.mode, new.mode)?;
        }
        writeln!(f, "similarity index {}%", self.similarity.unwrap_or(0))?;
        writeln!(f, "{word} from {}", self.shown(from))?;
        writeln!(f, "{word} to {}", self.shown(&self.path))?;
        self.content(f, &a, &b)
    }

    fn content(&self, f: &mut Out, a: &str, b: &str) -> fmt::Result {
        if self.binary {
            let bytes = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.bytes);
            let (from, to) = (bytes(&self.before), bytes(&self.after));
            return writeln!(f, "Binary files {a} and {b} differ ({from} to {to} bytes)");
        }
        match &self.diff {
            Some(diff) => {
                write!(f, "--- {a}\n+++ {b}\n")?;
                f.content(&diff.0);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A path as git shows it below `a/` or `b/`.
    fn name(&self, side: char, path: &str) -> String {
        quoted(&format!("{side}/{}", self.located(path)))
    }

    fn shown(&self, path: &str) -> String {
        quoted(&self.located(path))
    }

    fn located(&self, path: &str) -> String {
        if self.tree == "workspace" {
            path.to_string()
        } else {
            format!("{}/{path}", self.tree)
        }
    }
}

/// Whether what the host has now is not what the agent's change is based on.
fn owner_changed(delta: &Delta, base: &Base) -> bool {
    match (&delta.base, base.version(&delta.path)) {
        (None, Ok(now)) => now.is_some(),
        (Some(_), Ok(None)) => true,
        (Some(base), Ok(Some(now))) => {
            (base.kind, base.ino, base.mode, base.mtime) != (now.kind, now.ino, now.mode, now.mtime)
                && base.kind != Kind::Dir
        }
        (_, Err(_)) => false,
    }
}

enum Text {
    /// In any code.
    Words(Vec<u8>),
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
    Text::Words(bytes)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|b| *b == b'\n').collect()
}

/// A unified diff by lines as git counts them, which end with a line feed and nothing else.
fn compared(old: &[u8], new: &[u8]) -> (Vec<u8>, f32) {
    let (old, new) = (lines(old), lines(new));
    let diff = TextDiff::from_slices(&old, &new);
    let mut out = Vec::new();
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        out.extend(format!("{}\n", hunk.header()).into_bytes());
        for line in hunk.iter_changes() {
            out.extend(line.tag().to_string().into_bytes());
            out.extend_from_slice(line.value());
            if !line.value().ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
    (out, diff.ratio())
}

fn open_new(new: &New, base: &Base, upper: &Upper) -> Option<File> {
    match &new.content {
        Content::Data(id) => upper.open_data(*id).ok(),
        Content::Base(from) => base.open_file(from).ok().map(|(file, _)| file),
        Content::Kept(event) => File::open(upper.undo().join(event.to_string())).ok(),
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

/// A path as git quotes it: with escapes, in quotes, when it holds anything unusual. Paths come
/// with their own escape for bytes that are no text.
fn quoted(path: &str) -> String {
    let bytes = path::bytes(path).unwrap_or_else(|| path.as_bytes().to_vec());
    let usual = |b: &u8| *b >= b' ' && *b != 0x7f && *b != b'"' && *b != b'\\';
    let plain = std::str::from_utf8(&bytes).ok();
    if let Some(plain) = plain
        && bytes.iter().all(usual)
        && !plain.chars().any(char::is_control)
    {
        return plain.to_string();
    }
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}

/// One line, and not a long one.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 400;
    let line = text.replace('\n', "\\n");
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Characters that change the direction of what follows, so that text looks like another.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of the agent for a terminal: control characters are shown, not sent.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() || turns(c) => {
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

    fn side(kind: &str, mode: &str) -> Option<Side> {
        Some(Side {
            kind: kind.to_string(),
            mode: mode.to_string(),
            bytes: 3,
            target: None,
        })
    }

    fn patch(text: &str) -> Option<Patch> {
        Some(Patch(text.as_bytes().to_vec()))
    }

    fn a_change() -> Change {
        Change {
            tree: "workspace".into(),
            path: "a/b".into(),
            operation: "modify".into(),
            moved_from: None,
            before: side("file", "100644"),
            after: side("file", "100755"),
            similarity: None,
            diff: patch("@@ -1 +1 @@\n-x\n+\u{1b}[2Jy\n"),
            binary: false,
            place: None,
            runs: Vec::new(),
            attributes: Vec::new(),
            links: Vec::new(),
            conflict: false,
        }
    }

    #[test]
    fn in_the_form_of_git() {
        let mut change = a_change();
        assert_eq!(
            change.to_string(),
            "diff --git a/a/b b/a/b\nold mode 100644\nnew mode 100755\n--- a/a/b\n\
             +++ b/a/b\n@@ -1 +1 @@\n-x\n+\\u{1b}[2Jy\n"
        );
        change.diff = patch("@@ -1 +1 @@\n-x\r\n+\u{1b}\u{202e}y\r\n");
        let (shown, patch) = (
            change.to_string(),
            String::from_utf8(change.patch()).unwrap(),
        );
        assert!(
            shown.ends_with("\n-x\\r\n+\\u{1b}\\u{202e}y\\r\n"),
            "{shown}"
        );
        assert!(patch.ends_with("\n-x\r\n+\u{1b}\u{202e}y\r\n"), "{patch}");
        change.binary = true;
        change.before = None;
        assert_eq!(
            change.to_string(),
            "diff --git a/a/b b/a/b\nnew file mode 100755\n\
             Binary files /dev/null and b/a/b differ (0 to 3 bytes)\n"
        );
    }

    #[test]
    fn content_in_another_code_stays_as_it_is() {
        let mut change = a_change();
        let (diff, _) = compared(b"caf\xe9\r\nold\rline\n", b"caf\xe9\r\nnew\rline\xff");
        assert_eq!(
            diff,
            b"@@ -1,2 +1,2 @@\n caf\xe9\r\n-old\rline\n+new\rline\xff\n\\ No newline at end of file\n"
        );
        change.diff = Some(Patch(diff.clone()));
        assert!(change.patch().ends_with(&diff));
        let shown = change.to_string();
        assert!(
            shown.contains("\n caf\\xe9\\r\n-old\\rline\n+new\\rline\\xff\n"),
            "{shown}"
        );
        let json = serde_json::to_value(&change).unwrap();
        assert_eq!(json["diff_base64"], STANDARD.encode(&diff));
        assert_eq!(json["diff"], *String::from_utf8_lossy(&diff));
        let json = serde_json::to_value(a_change()).unwrap();
        assert_eq!(json["diff"], "@@ -1 +1 @@\n-x\n+\u{1b}[2Jy\n");
        assert!(json.get("diff_base64").is_none());
    }

    #[test]
    fn what_git_has_no_form_for_is_a_remark() {
        let mut change = a_change();
        change.place = Some("package scripts".into());
        change.runs = vec![Runs {
            entry: "scripts.x".into(),
            command: "evil\u{7}".into(),
        }];
        change.conflict = true;
        let text = change.to_string();
        assert!(
            text.starts_with(
                "# conflict: a/b was changed by its owner, too\n# runs later: a/b is a place for: package scripts\n\
                 # runs: scripts.x: evil\\u{7}\ndiff --git"
            ),
            "{text}"
        );
        let mut change = a_change();
        change.before = None;
        change.after = side("dir", "040755");
        assert_eq!(change.to_string(), "# new dir a/b, mode 040755\n");
    }

    #[test]
    fn moves_and_changes_of_kind() {
        let mut change = a_change();
        change.operation = "rename".into();
        change.moved_from = Some("old name".into());
        change.similarity = Some(100);
        change.diff = None;
        change.after = side("file", "100644");
        assert_eq!(
            change.to_string(),
            "diff --git a/old name b/a/b\nsimilarity index 100%\nrename from old name\nrename to a/b\n"
        );
        let mut change = a_change();
        change.after = side("symlink", "120000");
        change.diff = patch("@@ -1 +1 @@\n-x\n+target\n\\ No newline at end of file\n");
        assert_eq!(
            change.to_string(),
            "diff --git a/a/b b/a/b\ndeleted file mode 100644\n--- a/a/b\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n\
             diff --git a/a/b b/a/b\nnew file mode 120000\n--- /dev/null\n+++ b/a/b\n@@ -0,0 +1,1 @@\n+target\n\
             \\ No newline at end of file\n"
        );
    }

    #[test]
    fn odd_names_are_quoted_as_git_does() {
        for (text, shown) in [
            ("plain name", "plain name"),
            ("grün", "grün"),
            ("a\\x0ab", "\"a\\nb\""),
            ("q\"", "\"q\\\"\""),
            ("\\xff\\\\", "\"\\377\\\\\""),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }
}
