//! Pushes of git over HTTP: which refs they move, which commits they bring, and an answer that git
//! understands when nothing is sent.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};
use sha1::{Digest as _, Sha1};

/// So many refs and commits are told.
const TOLD_MAX: usize = 20;
/// So many bytes of commands are read.
const COMMANDS_BYTES_MAX: usize = 1 << 20;
/// So much of a pack is looked through for commits, which git writes first.
const PACK_BYTES_MAX: u64 = 32 << 20;
/// A commit is told up to this size.
const COMMIT_BYTES_MAX: usize = 64 << 10;
/// A packet of git's protocol holds this much text.
const PACKET_BYTES_MAX: usize = 65_000;

/// A push as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// Which refs it moves.
    pub refs: Vec<Ref>,
    /// The first commits that it brings: name and first line.
    pub commits: Vec<(String, String)>,
    /// Whether the client reads a report on each ref.
    report: bool,
    /// Whether the client reads messages beside the report.
    sideband: bool,
}

/// A ref that a push moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// Full name.
    pub name: String,
    /// Where it was, all zeros when it is new.
    pub old: String,
    /// Where it goes, all zeros when it is deleted.
    pub new: String,
}

/// Whether a request is a push by its path.
pub(crate) fn is_push(method: &str, path: &str) -> bool {
    method == "POST" && bare(path).ends_with("/git-receive-pack")
}

/// Whether a request is git asking for objects: its answer is all there is to it.
pub(crate) fn is_fetch(method: &str, path: &str) -> bool {
    method == "POST" && bare(path).ends_with("/git-upload-pack")
}

fn bare(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

impl Push {
    /// Reads what a push says; `None` when it is none.
    pub fn read(mut body: impl Read) -> Option<Self> {
        let mut push = Self::default();
        let mut read = 0;
        loop {
            let line = match packet(&mut body)? {
                Packet::Flush => break,
                Packet::Line(line) => line,
            };
            read += line.len();
            if read > COMMANDS_BYTES_MAX {
                return None;
            }
            let text = String::from_utf8_lossy(&line);
            let (command, offers) = text.split_once('\0').unwrap_or((&text, ""));
            if command.starts_with("shallow ") || command.starts_with("push-cert") {
                continue;
            }
            for offer in offers.split_ascii_whitespace() {
                push.report |= offer.starts_with("report-status");
                push.sideband |= offer == "side-band-64k";
            }
            let mut words = command.trim_end_matches('\n').splitn(3, ' ');
            let (old, new, name) = (words.next()?, words.next()?, words.next()?);
            if !is_object(old) || !is_object(new) {
                return None;
            }
            push.refs.push(Ref {
                name: name.to_string(),
                old: old.to_string(),
                new: new.to_string(),
            });
        }
        push.commits = commits(body.take(PACK_BYTES_MAX)).unwrap_or_default();
        Some(push)
    }

    /// The refs in words.
    pub fn refs_in_words(&self) -> String {
        let short = |id: &str| id.chars().take(9).collect::<String>();
        let mut told: Vec<String> = self
            .refs
            .iter()
            .take(TOLD_MAX)
            .map(|r| match (is_nothing(&r.old), is_nothing(&r.new)) {
                (true, _) => format!("{} (new, {})", r.name, short(&r.new)),
                (_, true) => format!("{} (deleted, was {})", r.name, short(&r.old)),
                _ => format!("{} ({} to {})", r.name, short(&r.old), short(&r.new)),
            })
            .collect();
        if self.refs.len() > TOLD_MAX {
            told.push(format!("{} more", self.refs.len() - TOLD_MAX));
        }
        told.join(", ")
    }

    /// The commits in words, a line each.
    pub fn commits_in_words(&self) -> String {
        let line = |(id, subject): &(String, String)| {
            format!("{} {subject}", id.chars().take(9).collect::<String>())
        };
        let told: Vec<String> = self.commits.iter().map(line).collect();
        told.join("\n")
    }

    /// What git is answered when nothing was sent. `taken` is what it is told of each ref: that it
    /// went well (it is held), or why it did not. `text` is shown to who pushes.
    pub(crate) fn answer(&self, refused: Option<&str>, text: &str) -> Vec<u8> {
        let mut report = Vec::new();
        if self.report {
            line(&mut report, b"unpack ok\n");
            for r in &self.refs {
                let told = match refused {
                    None => format!("ok {}\n", r.name),
                    Some(why) => format!("ng {} {why}\n", r.name),
                };
                line(&mut report, told.as_bytes());
            }
            report.extend_from_slice(b"0000");
        }
        if !self.sideband {
            return report;
        }
        let mut out = Vec::new();
        for piece in format!("{text}\n").into_bytes().chunks(PACKET_BYTES_MAX) {
            line(&mut out, &[&[2], piece].concat());
        }
        for piece in report.chunks(PACKET_BYTES_MAX) {
            line(&mut out, &[&[1], piece].concat());
        }
        out.extend_from_slice(b"0000");
        out
    }
}

enum Packet {
    Flush,
    Line(Vec<u8>),
}

/// One packet; `None` when it is none.
fn packet(body: &mut impl Read) -> Option<Packet> {
    let mut head = [0; 4];
    body.read_exact(&mut head).ok()?;
    let length = usize::from_str_radix(std::str::from_utf8(&head).ok()?, 16).ok()?;
    match length {
        0 => Some(Packet::Flush),
        1..=4 => None,
        _ => {
            let mut line = vec![0; length - 4];
            body.read_exact(&mut line).ok()?;
            Some(Packet::Line(line))
        }
    }
}

fn line(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(format!("{:04x}", text.len() + 4).as_bytes());
    out.extend_from_slice(text);
}

/// SHA-1 or SHA-256, in hexadecimal digits.
fn is_object(id: &str) -> bool {
    matches!(id.len(), 40 | 64) && id.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_nothing(id: &str) -> bool {
    id.bytes().all(|b| b == b'0')
}

/// The first commits of a pack; of what is written as a difference only what differs from one of them.
fn commits(mut pack: impl Read) -> Option<Vec<(String, String)>> {
    let mut head = [0; 12];
    pack.read_exact(&mut head).ok()?;
    if head.get(..4)? != b"PACK" {
        return None;
    }
    let count = u32::from_be_bytes(head.get(8..12)?.try_into().ok()?);
    let mut bytes = Bytes::new(pack);
    let mut known = BTreeMap::new();
    let mut found: Vec<(String, String)> = Vec::new();
    for _ in 0..count {
        let at = bytes.taken;
        let Some(object) = object(&mut bytes, &known, &found) else {
            break;
        };
        if let Some(text) = object {
            found.push(commit(&text));
            known.insert(at, text);
            if found.len() == TOLD_MAX {
                break;
            }
        }
    }
    Some(found)
}

/// Reads over one object; what is in it when it is a commit. `known` are the commits before it by where
/// they begin, `found` their names, in the same order.
#[expect(
    clippy::option_option,
    reason = "an object that is no commit is no end of the pack"
)]
fn object(
    bytes: &mut Bytes<impl Read>,
    known: &BTreeMap<u64, Vec<u8>>,
    found: &[(String, String)],
) -> Option<Option<Vec<u8>>> {
    let at = bytes.taken;
    let first = bytes.next()?;
    let kind = (first >> 4) & 7;
    let mut more = first & 0x80 != 0;
    while more {
        more = bytes.next()? & 0x80 != 0;
    }
    let base = match kind {
        6 => {
            let mut byte = bytes.next()?;
            let mut back = u64::from(byte & 0x7f);
            while byte & 0x80 != 0 {
                byte = bytes.next()?;
                back = back.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7f);
            }
            at.checked_sub(back).and_then(|at| known.get(&at))
        }
        7 => {
            let mut id = String::new();
            for _ in 0..20 {
                id.push_str(&format!("{:02x}", bytes.next()?));
            }
            let at = found.iter().position(|(known, _)| *known == id);
            at.and_then(|at| known.values().nth(at))
        }
        _ => None,
    };
    let wanted = kind == 1 || base.is_some();
    let text = bytes.inflate(if wanted { COMMIT_BYTES_MAX } else { 0 })?;
    Some(match base {
        Some(base) => patched(base, &text),
        None => (kind == 1).then_some(text),
    })
}

/// What a difference makes of its base; nothing when it is none, or when that is too large.
fn patched(base: &[u8], difference: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = difference.iter().copied();
    let mut size = || -> Option<usize> {
        let (mut size, mut shift) = (0usize, 0u32);
        loop {
            let byte = bytes.next()?;
            size |= usize::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(size);
            }
        }
    };
    let (from, to) = (size()?, size()?);
    if from != base.len() || to > COMMIT_BYTES_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(to);
    while let Some(order) = bytes.next() {
        if order & 0x80 == 0 {
            let length = usize::from(order);
            let new: Vec<u8> = bytes.by_ref().take(length).collect();
            if length == 0 || new.len() < length {
                return None;
            }
            out.extend_from_slice(&new);
            continue;
        }
        let (mut at, mut length) = (0usize, 0usize);
        for bit in 0..7 {
            if order & (1 << bit) == 0 {
                continue;
            }
            let byte = usize::from(bytes.next()?);
            match bit {
                0..4 => at |= byte << (8 * bit),
                _ => length |= byte << (8 * (bit - 4)),
            }
        }
        let length = if length == 0 { 0x10000 } else { length };
        out.extend_from_slice(base.get(at..at.checked_add(length)?)?);
        if out.len() > to {
            return None;
        }
    }
    (out.len() == to).then_some(out)
}

/// Name and first line of a commit.
fn commit(text: &[u8]) -> (String, String) {
    let mut digest = Sha1::new();
    digest.update(format!("commit {}\0", text.len()));
    digest.update(text);
    let id: String = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let subject = text
        .windows(2)
        .position(|w| w == b"\n\n")
        .and_then(|at| text.get(at + 2..))
        .and_then(|message| message.split(|b| *b == b'\n').next())
        .unwrap_or_default();
    (id, String::from_utf8_lossy(subject).into_owned())
}

/// A reader with a place in a piece of what is read.
struct Bytes<R> {
    reader: R,
    piece: Vec<u8>,
    at: usize,
    /// Bytes used of the whole.
    taken: u64,
}

impl<R: Read> Bytes<R> {
    fn new(reader: R) -> Self {
        Self {
            reader,
            piece: Vec::new(),
            at: 0,
            taken: 0,
        }
    }

    /// What was read and not used yet; empty at the end.
    fn rest(&mut self) -> &[u8] {
        if self.at == self.piece.len() {
            self.piece.resize(64 << 10, 0);
            let n = self.reader.read(&mut self.piece).unwrap_or(0);
            self.piece.truncate(n);
            self.at = 0;
        }
        self.piece.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.rest().first()?;
        self.at += 1;
        self.taken += 1;
        Some(byte)
    }

    /// Reads over a zlib stream; its first bytes.
    fn inflate(&mut self, kept_max: usize) -> Option<Vec<u8>> {
        let mut inflate = Decompress::new(true);
        let mut kept = Vec::new();
        let mut out = vec![0; 32 << 10];
        loop {
            let (read, made) = (inflate.total_in(), inflate.total_out());
            let rest = self.rest();
            if rest.is_empty() {
                return None;
            }
            let status = inflate
                .decompress(rest, &mut out, FlushDecompress::None)
                .ok()?;
            let read = usize::try_from(inflate.total_in() - read).ok()?;
            let made = usize::try_from(inflate.total_out() - made).ok()?;
            self.at += read;
            self.taken += read as u64;
            let room = kept_max.saturating_sub(kept.len()).min(made);
            kept.extend_from_slice(out.get(..room)?);
            if status == Status::StreamEnd {
                return Some(kept);
            }
            if read == 0 && made == 0 {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const ZERO: &str = "0000000000000000000000000000000000000000";
    const ONE: &str = "1111111111111111111111111111111111111111";

    fn packed(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![
            0x80 | (kind << 4) | (content.len() & 15) as u8,
            (content.len() >> 4) as u8,
        ];
        let mut deflate =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        deflate.write_all(content).unwrap();
        out.extend(deflate.finish().unwrap());
        out
    }

    fn push(offers: &str) -> Vec<u8> {
        let mut body = Vec::new();
        line(
            &mut body,
            format!("{ZERO} {ONE} refs/heads/main\0 {offers}").as_bytes(),
        );
        line(
            &mut body,
            format!("{ONE} {ZERO} refs/tags/old\n").as_bytes(),
        );
        body.extend_from_slice(b"0000PACK\0\0\0\x02\0\0\0\x03");
        body.extend(packed(3, b"a blob before it"));
        body.extend(packed(1, b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nFirst line\n\nMore\n"));
        body.extend(packed(2, b"a tree"));
        body
    }

    #[test]
    fn a_push_tells_its_refs_and_commits() {
        let push = Push::read(&push("report-status side-band-64k agent=git/2")[..]).unwrap();
        assert_eq!(
            push.refs_in_words(),
            "refs/heads/main (new, 111111111), refs/tags/old (deleted, was 111111111)"
        );
        let told = push.commits_in_words();
        assert_eq!(told.split_once(' ').unwrap().1, "First line");
        assert!(push.report && push.sideband);
    }

    /// Two commits that are nearly the same: git writes the second as a difference from the first.
    #[test]
    fn commits_written_as_differences_are_told() {
        let first = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nOne\n";
        let keep = first.len() - 4;
        let mut difference = vec![first.len() as u8, (keep + 6) as u8];
        difference.extend([0x90, keep as u8, 6]);
        difference.extend(b"Other\n");
        let one = packed(1, first);
        for by_name in [false, true] {
            let mut body = b"0000PACK\0\0\0\x02\0\0\0\x02".to_vec();
            body.extend(&one);
            let kind = if by_name { 7 } else { 6 };
            let object = packed(kind, &difference);
            body.extend(&object[..2]);
            if by_name {
                let (id, _) = commit(first);
                body.extend(
                    (0..20).map(|n| u8::from_str_radix(&id[2 * n..2 * n + 2], 16).unwrap()),
                );
            } else {
                let mut back = one.len();
                let mut coded = vec![(back & 0x7f) as u8];
                while back >> 7 > 0 {
                    back = (back >> 7) - 1;
                    coded.insert(0, 0x80 | (back & 0x7f) as u8);
                }
                body.extend(coded);
            }
            body.extend(&object[2..]);
            let told = Push::read(&body[..]).unwrap().commits_in_words();
            let subjects: Vec<&str> = told.lines().map(|line| &line[10..]).collect();
            assert_eq!(subjects, ["One", "Other"], "by name: {by_name}");
        }
        assert_eq!(patched(b"abc", &[3, 2, 0x91, 1, 2]), Some(b"bc".to_vec()));
        for bad in [
            &[][..],
            &[3],
            &[3, 2],
            &[4, 2, 0x91, 1, 2],
            &[3, 2, 0x91, 2, 2],
            &[3, 2, 0],
            &[3, 9, 3, 1],
        ] {
            assert_eq!(patched(b"abc", bad), None, "{bad:?}");
        }
    }

    #[test]
    fn git_is_answered_in_its_own_words() {
        let plain = Push::read(&push("report-status")[..]).unwrap();
        assert_eq!(
            String::from_utf8(plain.answer(None, "held")).unwrap(),
            "000eunpack ok\n0017ok refs/heads/main\n0015ok refs/tags/old\n0000"
        );
        let side = Push::read(&push("report-status side-band-64k")[..]).unwrap();
        let answer = side.answer(Some("refused"), "why");
        assert!(answer.starts_with(b"0009\x02why\n"));
        assert!(answer.ends_with(b"00000000"));
        let silent = Push::read(&push("")[..]).unwrap();
        assert!(silent.answer(None, "held").is_empty());
    }

    #[test]
    fn what_is_no_push() {
        for body in [&b""[..], b"000", b"zzzz", b"0008abcd0000", b"0003"] {
            assert_eq!(Push::read(body), None, "{body:?}");
        }
        // What a client sends to see whether it may: no ref, no commit.
        assert_eq!(Push::read(&b"0000"[..]), Some(Push::default()));
        assert!(is_push("POST", "/o/r.git/git-receive-pack?x"));
        assert!(!is_push("GET", "/o/r.git/git-receive-pack"));
        assert!(is_fetch("POST", "/o/r.git/git-upload-pack"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..600) {
            let mut body = push("report-status");
            let at = at.min(body.len());
            body.splice(at..(at + bytes.len()).min(body.len()), bytes);
            let _ = Push::read(&body[..]);
        }
    }
}
