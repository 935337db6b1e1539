//! Looking into packed content, whatever its headers say: gzip, zstd, zip entries and zlib streams, known by how they
//! begin, at any place of a body; also when base64 or hexadecimal digits hold them. One within the other, to
//! [`DEPTH`] levels. An archive that only joins files (tar, a stored zip entry) needs no unpacking to be searched.
//!
//! brotli begins like anything else; it is undone where a header names it.

use std::io::{self, Read};
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use kernel::{Carried, Scanner};

use crate::ahead::Ahead;

/// Levels of packing: base64 of a zip in a gzip is three.
pub(crate) const DEPTH: usize = 4;
/// So many beginnings are followed in one message; one with more is refused.
pub(crate) const ATTEMPTS_MAX: u32 = 1 << 14;
/// Bytes that one message may grow to, all its parts together; one that grows more is refused.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// A beginning may lie across two pieces that are read.
const MAGIC_BYTES_MAX: usize = 8;
/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// A part that is searched beside others has at least so many bytes.
const PART_BYTES_MIN: u64 = 4 << 20;
pub(crate) const GONE: &str = "a part of it could not be searched";
const GROWN: &str = "it grows too large when it is unpacked";
const MANY: &str = "there are too many packed parts in it to look into";

/// A reader over the content from a place on; may be asked for again and again.
pub(crate) type Source<'a> = dyn Fn(u64) -> io::Result<Box<dyn Read + Send>> + 'a;

/// What one message may still cost.
pub(crate) struct Budget {
    attempts: u32,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            attempts: ATTEMPTS_MAX,
            bytes: UNPACKED_BYTES_MAX,
        }
    }
}

/// Searches the content and what is packed in it.
///
/// # Errors
/// When the content cannot be read, or there is more packed in it than is looked into.
pub(crate) fn scan(
    scanner: &Scanner,
    source: &Source<'_>,
    depth: usize,
    budget: &mut Budget,
) -> Result<Carried, String> {
    let mut found = Carried::nothing();
    let mut packs = Vec::new();
    let reader = source(0).map_err(unreadable)?;
    let read = plain(scanner, reader, 0, depth, budget, &mut packs)?;
    found.merge(&read.carried);
    read.end.map_err(unreadable)?;
    follow(scanner, source, depth, budget, &packs, &mut found)?;
    Ok(found)
}

/// As [`scan`] for so many bytes that can be read in several places at once: large ones are searched in
/// as many parts as there are processors. What was searched ahead counts when it was for the same.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_sized(
    scanner: &Scanner,
    source: &(dyn Fn(u64) -> io::Result<Box<dyn Read + Send>> + Sync),
    bytes: u64,
    ahead: Option<Ahead>,
    budget: &mut Budget,
) -> Result<Carried, String> {
    let ahead = ahead.filter(|ahead| ahead.scanner().is_as(scanner) && ahead.bytes() <= bytes);
    let done = ahead.as_ref().map_or(0, Ahead::bytes);
    let rest = bytes - done;
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let steps = (rest / PART_BYTES_MIN).clamp(1, processors);
    let part = rest
        .div_ceil(steps)
        .next_multiple_of(Scanner::STEP)
        .max(Scanner::STEP);
    if done == 0 && part >= bytes {
        return scan(scanner, source, DEPTH, budget);
    }
    budget.bytes = budget.bytes.checked_sub(bytes).ok_or(GROWN)?;
    let mut parts: Vec<Result<Part, String>> = std::thread::scope(|scope| {
        let starts = (done..bytes).step_by(usize::try_from(part).unwrap_or(usize::MAX));
        let threads: Vec<_> = starts
            .map(|from| scope.spawn(move || one_part(scanner, source, from, part)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(GONE.into())))
            .collect()
    });
    if let Some(ahead) = ahead {
        parts.extend(ahead.parts());
    }
    let mut found = Carried::nothing();
    let mut packs = Vec::new();
    for part in parts {
        let (read, more) = part?;
        if read.objects {
            // What follows git's objects is known by what came before it: in one piece then.
            budget.bytes += bytes;
            return scan(scanner, source, DEPTH, budget);
        }
        found.merge(&read.carried);
        read.end.map_err(unreadable)?;
        packs.extend(more);
    }
    if packs.len() >= ATTEMPTS_MAX as usize {
        return Err(MANY.into());
    }
    follow(scanner, source, DEPTH, budget, &packs, &mut found)?;
    Ok(found)
}

fn one_part(
    scanner: &Scanner,
    source: &(dyn Fn(u64) -> io::Result<Box<dyn Read + Send>> + Sync),
    from: u64,
    bytes: u64,
) -> Result<Part, String> {
    part_of(scanner, source(from).map_err(unreadable)?, from, bytes)
}

/// Searches so many bytes of what a reader gives, whose first stands at `from`, and as many more as a
/// token may reach beyond them.
pub(crate) fn part_of(
    scanner: &Scanner,
    reader: Box<dyn Read + Send>,
    from: u64,
    bytes: u64,
) -> Result<Part, String> {
    let reader = Box::new(reader.take(bytes + Scanner::OVERLAP));
    let mut packs = Vec::new();
    // The bytes themselves are counted by whoever cuts them.
    let mut budget = Budget {
        attempts: 0,
        bytes: bytes + Scanner::OVERLAP,
    };
    let read = plain(scanner, reader, from, DEPTH, &mut budget, &mut packs)?;
    packs.retain(|(place, _)| *place < from + bytes);
    Ok((read, packs))
}

/// Searches bytes that are all there, and what is packed in them.
///
/// # Errors
/// When there is more packed in them than is looked into.
pub(crate) fn scan_bytes(scanner: &Scanner, bytes: &bytes::Bytes) -> Result<Carried, String> {
    let source = |at: u64| -> io::Result<Box<dyn Read + Send>> {
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        Ok(Box::new(io::Cursor::new(bytes.slice(at..))))
    };
    scan(scanner, &source, DEPTH, &mut Budget::default())
}

/// What bytes carry, also where something is packed in them.
///
/// # Errors
/// When there is more packed in them than is looked into.
pub fn carried(scanner: &Scanner, bytes: &[u8]) -> Result<Carried, String> {
    scan_bytes(scanner, &bytes::Bytes::copy_from_slice(bytes))
}

fn follow(
    scanner: &Scanner,
    source: &Source<'_>,
    depth: usize,
    budget: &mut Budget,
    packs: &[(u64, Pack)],
    found: &mut Carried,
) -> Result<(), String> {
    for (at, pack) in packs {
        budget.attempts = budget.attempts.checked_sub(1).ok_or(MANY)?;
        let inner = |skip: u64| -> io::Result<Box<dyn Read + Send>> {
            let mut reader = pack.open(source(*at)?)?;
            io::copy(&mut (&mut reader).take(skip), &mut io::sink())?;
            Ok(reader)
        };
        // What only begins like it ends soon, with an error; what was read until then counts.
        let Ok(reader) = inner(0) else { continue };
        let mut packs = Vec::new();
        let read = plain(scanner, reader, 0, depth - 1, budget, &mut packs)?;
        found.merge(&read.carried);
        follow(scanner, &inner, depth - 1, budget, &packs, found)?;
    }
    Ok(())
}

/// What came of one part, and where packed content begins in it.
pub(crate) type Part = (Looked, Vec<(u64, Pack)>);

/// What came of reading to an end.
pub(crate) struct Looked {
    carried: Carried,
    end: io::Result<()>,
    /// There were objects of git in it.
    objects: bool,
}

/// Searches what a reader gives and notes where packed content begins; the reader's first byte stands at
/// `from`.
fn plain(
    scanner: &Scanner,
    mut reader: Box<dyn Read + Send>,
    from: u64,
    depth: usize,
    budget: &mut Budget,
    packs: &mut Vec<(u64, Pack)>,
) -> Result<Looked, String> {
    let mut scan = scanner.start();
    let mut window = vec![0; MAGIC_BYTES_MAX + PIECE];
    let (mut kept, mut start) = (0, from);
    // git sends its objects one after the other, each a zlib stream.
    let mut objects = false;
    let end = loop {
        let Some(free) = window.get_mut(kept..) else {
            break Ok(());
        };
        let read = match reader.read(free) {
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => break Err(e),
        };
        let piece = window.get(kept..kept + read).unwrap_or_default();
        scan.feed(piece);
        budget.bytes = budget.bytes.checked_sub(read as u64).ok_or(GROWN)?;
        let known = window.get(..kept + read).unwrap_or_default();
        // At the end also what is too short to be sure.
        let sure = if read == 0 {
            known.len()
        } else {
            known.len().saturating_sub(MAGIC_BYTES_MAX)
        };
        if depth > 0 {
            let mut next = (start == 0 && sure > 0).then_some(0);
            let mut from = 0;
            while let Some(at) = next
                .take()
                .or_else(|| beginning(known, from, objects))
                .filter(|at| *at < sure)
            {
                from = at + 1;
                let here = known.get(at..).unwrap_or_default();
                let place = start + at as u64;
                objects |= here.starts_with(b"PACK\0\0\0");
                if let Some(pack) = Pack::begins(here, objects || place == 0) {
                    if packs.len() >= ATTEMPTS_MAX as usize {
                        return Err(MANY.into());
                    }
                    packs.push((place, pack));
                }
            }
        }
        if read == 0 {
            break Ok(());
        }
        let len = known.len();
        window.copy_within(sure..len, 0);
        kept = len - sure;
        start += sure as u64;
    };
    Ok(Looked {
        carried: scan.finish(),
        end,
        objects,
    })
}

fn unreadable(error: io::Error) -> String {
    format!("the parked bytes cannot be read: {error}")
}

/// The next place from `from` on where something packed may begin. zlib streams begin with two bytes that are
/// everywhere, so they are asked for only where `zlib` says so.
fn beginning(bytes: &[u8], from: usize, zlib: bool) -> Option<usize> {
    match &*BEGINNINGS {
        Some(all) if !zlib => {
            let rest = aho_corasick::Input::new(bytes).range(from.min(bytes.len())..);
            all.find(rest).map(|found| found.start())
        }
        _ => BEGINNING.find(bytes, from),
    }
}

/// All of [`Pack::begins`] but zlib, searched together.
static BEGINNINGS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let exact: [&[u8]; 8] = [
        b"\x1f\x8b\x08",
        b"\x28\xb5\x2f\xfd",
        b"PK\x03\x04",
        b"PACK\0\0\0",
        b"H4sI",
        b"KLUv/",
        b"KLUv_",
        b"UEsDB",
    ];
    let mut all: Vec<Vec<u8>> = exact.iter().map(|bytes| bytes.to_vec()).collect();
    for digits in ["1f8b08", "504b0304", "28b52ff"] {
        // Each digit in either case.
        let mut forms = vec![Vec::new()];
        for digit in digits.bytes() {
            let upper = digit.to_ascii_uppercase();
            let with = |digit: u8| {
                forms
                    .iter()
                    .map(move |form: &Vec<u8>| [form.as_slice(), &[digit]].concat())
            };
            forms = if upper == digit {
                with(digit).collect()
            } else {
                with(digit).chain(with(upper)).collect()
            };
        }
        all.extend(forms);
    }
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .build(all)
        .ok()
});

/// Bytes with which something packed may begin; most bytes are none of them.
struct Beginning([bool; 256]);

static BEGINNING: Beginning =
    Beginning::new(&[0x1f, 0x28, 0x78, b'P', b'H', b'K', b'U', b'1', b'2', b'5']);

impl Beginning {
    const fn new(first: &[u8]) -> Self {
        let mut table = [false; 256];
        let mut n = 0;
        while n < first.len() {
            #[expect(
                clippy::indexing_slicing,
                reason = "a byte is below 256, and `n` below the length"
            )]
            {
                table[first[n] as usize] = true;
            }
            n += 1;
        }
        Self(table)
    }

    /// The next place from `from` on.
    fn find(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let may = |byte: &u8| self.0.get(usize::from(*byte)).copied().unwrap_or(true);
        let rest = bytes.get(from..)?;
        rest.iter().position(may).map(|at| from + at)
    }
}

/// How something is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pack {
    Gzip,
    Zstd,
    Zip,
    Zlib,
    Base64,
    Hex,
}

impl Pack {
    /// What begins here, by its first bytes.
    fn begins(here: &[u8], zlib: bool) -> Option<Self> {
        match here {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [b'P', b'K', 3, 4, ..] => Some(Self::Zip),
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] if zlib => Some(Self::Zlib),
            [b'H', b'4', b's', b'I', ..]
            | [b'K', b'L', b'U', b'v', b'/' | b'_', ..]
            | [b'U', b'E', b's', b'D', b'B', ..] => Some(Self::Base64),
            [b'1', b'f' | b'F', b'8', b'b' | b'B', b'0', b'8', ..]
            | [b'5', b'0', b'4', b'b' | b'B', b'0', b'3', b'0', b'4', ..]
            | [
                b'2',
                b'8',
                b'b' | b'B',
                b'5',
                b'2',
                b'f' | b'F',
                b'f' | b'F',
                ..,
            ] => Some(Self::Hex),
            _ => None,
        }
    }

    fn open(self, reader: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        let reader = io::BufReader::with_capacity(8 << 10, reader);
        Ok(match self {
            Self::Gzip => Box::new(flate2::bufread::GzDecoder::new(reader)),
            Self::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(reader)),
            Self::Zstd => {
                Box::new(ruzstd::decoding::StreamingDecoder::new(reader).map_err(io::Error::other)?)
            }
            Self::Zip => zip_entry(reader)?,
            Self::Base64 => Box::new(Digits {
                inner: reader,
                bits: 6,
                value: base64_value,
                held: (0, 0),
            }),
            Self::Hex => Box::new(Digits {
                inner: reader,
                bits: 4,
                value: hex_value,
                held: (0, 0),
            }),
        })
    }
}

/// The content of a zip entry from its local header on; a stored one is readable as it is.
fn zip_entry(mut reader: impl io::BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut header = [0; 30];
    reader.read_exact(&mut header)?;
    let number = |low: u8, high: u8| u64::from(u16::from_le_bytes([low, high]));
    if number(header[8], header[9]) != 8 {
        return Err(io::Error::other("not deflated"));
    }
    let names = number(header[26], header[27]) + number(header[28], header[29]);
    io::copy(&mut (&mut reader).take(names), &mut io::sink())?;
    Ok(Box::new(flate2::bufread::DeflateDecoder::new(reader)))
}

/// Digits as bytes, line breaks aside (also those written `\n`), up to the first that is none.
struct Digits<R> {
    inner: R,
    bits: u32,
    value: fn(u8) -> Option<u8>,
    /// Bits, and how many.
    held: (u32, u32),
}

impl<R: io::BufRead> Read for Digits<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < out.len() {
            let piece = self.inner.fill_buf()?;
            if piece.is_empty() {
                break;
            }
            let mut used = 0;
            let mut ended = false;
            let mut escape = false;
            for byte in piece {
                if written == out.len() {
                    break;
                }
                if let Some(value) = (self.value)(*byte).filter(|_| !escape) {
                    let (bits, count) = (
                        self.held.0 << self.bits | u32::from(value),
                        self.held.1 + self.bits,
                    );
                    if count >= 8 {
                        if let Some(slot) = out.get_mut(written) {
                            *slot = (bits >> (count - 8)) as u8;
                        }
                        written += 1;
                        self.held = (bits & ((1 << (count - 8)) - 1), count - 8);
                    } else {
                        self.held = (bits, count);
                    }
                } else if escape {
                    escape = false;
                    ended = !matches!(byte, b'n' | b'r');
                } else {
                    escape = *byte == b'\\';
                    ended = !escape && !byte.is_ascii_whitespace();
                }
                if ended {
                    break;
                }
                used += 1;
            }
            self.inner.consume(used);
            if ended {
                break;
            }
        }
        Ok(written)
    }
}

fn base64_value(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|v| u8::try_from(v).ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use base64::Engine as _;
    use kernel::sensitive::Sensitive;
    use kernel::{EventId, Level, Source};

    use super::*;

    #[test]
    fn whatever_may_begin_is_looked_at() {
        for first in 0..=255u8 {
            // Every beginning, with its first byte exchanged for this one.
            let begins = [
                &[0, 0x8b, 8][..],
                &[0, 0xb5, 0x2f, 0xfd],
                &[0, b'K', 3, 4],
                &[0, 0x9c],
                b"\x004sI",
                b"\0LUv/",
                b"\0EsDB",
                b"\0f8b08",
                b"\x0004b0304",
                b"\x008b52ffd",
                b"\0ACK\0\0\0",
            ];
            let any = begins.iter().any(|rest| {
                let here = [&[first], &rest[1..]].concat();
                Pack::begins(&here, true).is_some() || here.starts_with(b"PACK\0\0\0")
            });
            assert_eq!(BEGINNING.find(&[first], 0).is_some(), any, "{first:#04x}");
            for rest in begins {
                let here = [&[first], &rest[1..]].concat();
                let begins =
                    Pack::begins(&here, false).is_some() || here.starts_with(b"PACK\0\0\0");
                let found = beginning(&here, 0, false);
                assert_eq!(found.is_some(), begins, "{here:?}");
                let upper = here.to_ascii_uppercase();
                let begins =
                    Pack::begins(&upper, false).is_some() || upper.starts_with(b"PACK\0\0\0");
                assert_eq!(beginning(&upper, 0, false).is_some(), begins, "{upper:?}");
            }
        }
    }

    const SECRET: &[u8] = b"the password is hunter2-in-a-box, keep it";

    fn scanner() -> Scanner {
        let mut sensitive = Sensitive::default();
        sensitive.add_text(
            "hunter2-in-a-box",
            Level::Critical,
            &Source::Task,
            EventId(1),
        );
        sensitive.scanner()
    }

    fn found(body: &[u8]) -> usize {
        let body = bytes::Bytes::copy_from_slice(body);
        scan_bytes(&scanner(), &body).unwrap().tokens().count()
    }

    /// As a large body is searched, with something in it where two parts meet.
    fn found_where_parts_meet(what: &[u8], before: u64) -> usize {
        let bytes = 2 * PART_BYTES_MIN + 12_345;
        let meet = bytes.div_ceil(2).next_multiple_of(Scanner::STEP);
        let mut body = vec![0; usize::try_from(bytes).unwrap()];
        let at = usize::try_from(meet - before).unwrap();
        body[at..at + what.len()].copy_from_slice(what);
        let body = bytes::Bytes::from(body);
        let source = |at: u64| -> io::Result<Box<dyn Read + Send>> {
            let at = usize::try_from(at).unwrap();
            Ok(Box::new(io::Cursor::new(body.slice(at..))))
        };
        let mut budget = Budget::default();
        let found = scan_sized(&scanner(), &source, bytes, None, &mut budget).unwrap();
        assert!(budget.bytes <= UNPACKED_BYTES_MAX - bytes);
        found.tokens().count()
    }

    #[test]
    fn where_parts_meet_nothing_is_missed() {
        let packed = gzip(&content());
        let base64 = base64::engine::general_purpose::STANDARD.encode(SECRET);
        for before in [0, 1, 5, 30] {
            assert!(found_where_parts_meet(SECRET, before) > 0, "{before}");
            assert!(found_where_parts_meet(&packed, before) > 0, "gz {before}");
        }
        assert!(found_where_parts_meet(base64.as_bytes(), 30) > 0);
        assert_eq!(found_where_parts_meet(b"nothing", 3), 0);
        // After git's objects all in one piece.
        let pack = [&b"PACK\0\0\0\x02"[..], &zlib(&content())].concat();
        assert!(found_where_parts_meet(&pack, 500) > 0);
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn zip(bytes: &[u8]) -> Vec<u8> {
        let mut deflated =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        deflated.write_all(bytes).unwrap();
        let mut out =
            b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\x02\0a.txtxx"
                .to_vec();
        out.extend(deflated.finish().unwrap());
        out
    }

    /// Compressible, so that the secret does not stand in what comes out.
    fn content() -> Vec<u8> {
        [
            SECRET,
            &b"hunter2-in-a- box hunter2 in a box ".repeat(300),
            SECRET,
        ]
        .concat()
    }

    #[test]
    fn packed_content_is_looked_into_wherever_it_begins() {
        let base64 = |bytes: &[u8]| {
            base64::engine::general_purpose::STANDARD
                .encode(bytes)
                .into_bytes()
        };
        let wrapped = |bytes: &[u8]| base64(bytes).chunks(76).collect::<Vec<_>>().join(&b'\n');
        let far = |bytes: &[u8]| [&b"junk ".repeat(40_000)[..], bytes].concat();
        let plain = content();
        for (name, body) in [
            ("gzip", gzip(&plain)),
            ("zstd", zstd(&plain)),
            ("zip", zip(&plain)),
            ("zlib", zlib(&plain)),
            ("a later zip entry", [zip(b"nothing"), zip(&plain)].concat()),
            ("far in", far(&gzip(&plain))),
            ("gzip in gzip", gzip(&far(&gzip(&plain)))),
            ("zip in gzip in base64", base64(&gzip(&zip(&plain)))),
            ("wrapped base64", far(&wrapped(&gzip(&plain)))),
            (
                "in JSON",
                [&br#"{"data":""#[..], &base64(&gzip(&plain)), b"\"}"].concat(),
            ),
            ("hex", hex(&gzip(&plain))),
            (
                "git objects",
                [
                    &b"0032PACK\0\0\0\x02\0\0\0\x02\x95\x0a"[..],
                    &zlib(b"tree"),
                    b"\xb5\x04",
                    &zlib(&plain),
                ]
                .concat(),
            ),
        ] {
            assert!(found(&body) > 0, "{name}");
        }
    }

    fn hex(bytes: &[u8]) -> Vec<u8> {
        bytes
            .iter()
            .flat_map(|b| format!("{b:02x}").into_bytes())
            .collect()
    }

    #[test]
    fn what_only_begins_like_it_harms_nothing() {
        let fakes = [
            &b"\x1f\x8b\x08PK\x03\x04\x28\xb5\x2f\xfdH4sIUEsDBKLUv/1f8b08"[..],
            &gzip(&content())[..100],
            SECRET,
        ]
        .concat();
        assert_eq!(found(&fakes), 1);
    }

    #[test]
    fn too_many_parts_are_refused() {
        let scanner = Sensitive::default().scanner();
        let body = bytes::Bytes::from(b"\x1f\x8b\x08".repeat(20_000));
        assert!(scan_bytes(&scanner, &body).is_err());
    }
}
