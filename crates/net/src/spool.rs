//! A request's bytes in canonical form: head and body in one run, so that one digest names all
//! that would be sent. Small ones stay in memory, large ones go to disk as they arrive.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use kernel::{Digest, Payload};
use sha2::{Digest as _, Sha256};
use store::Blobs;

use crate::target::Target;
use crate::upstream::{Body, BoxError};

/// Up to this size a request stays in memory.
const MEMORY_BYTES_MAX: usize = 256 << 10;
/// A head fits into this.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Read from disk in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// Whether a header is left out of what is approved.
pub(crate) fn is_incidental(name: &HeaderName) -> bool {
    kernel::manifest::INCIDENTAL.contains(&name.as_str())
}

/// The canonical head: method and URL, then the protected headers in order of their names.
pub(crate) fn head(method: &str, target: &Target, headers: &HeaderMap) -> Vec<u8> {
    let mut lines: Vec<(&str, &[u8])> = headers
        .iter()
        .filter(|(name, _)| !is_incidental(name))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    // Stable: several values of one name keep their order.
    lines.sort_by_key(|(name, _)| *name);
    let mut head = format!("{method} {}\n", target.url()).into_bytes();
    for (name, value) in lines {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.push(b'\n');
    }
    head.push(b'\n');
    head
}

/// Reads a canonical head back: first line, headers, and how long it was.
pub(crate) fn read_head(bytes: &[u8]) -> Option<(String, HeaderMap, usize)> {
    let end = bytes.windows(2).position(|w| w == b"\n\n")?;
    let mut lines = bytes.get(..end)?.split(|b| *b == b'\n');
    let first = String::from_utf8(lines.next()?.to_vec()).ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let colon = line.windows(2).position(|w| w == b": ")?;
        let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
        headers.append(name, HeaderValue::from_bytes(line.get(colon + 2..)?).ok()?);
    }
    Some((first, headers, end + 2))
}

/// Reads the head at the start of a file.
pub(crate) fn read_head_of(file: &File) -> Option<(String, HeaderMap, usize)> {
    let mut start = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    while let Ok(n) = file.read_at(start.get_mut(filled..)?, filled as u64) {
        filled += n;
        if n == 0 {
            break;
        }
    }
    read_head(start.get(..filled)?)
}

/// A body that lies in a file, from an offset to an end.
pub(crate) fn disk_body(file: File, at: u64, end: u64) -> Body {
    DiskReader {
        parked: Arc::new(Parked { file }),
        at,
        end,
    }
    .boxed_unsync()
}

/// All bytes of one request.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    head_bytes: usize,
    payload: Payload,
    bytes: Bytes,
    /// Set when the bytes lie on disk, and removes them when nobody has them any more.
    disk: Option<Arc<Parked>>,
}

/// Bytes in a file without a name: they go away with their last owner, crash included.
#[derive(Debug)]
pub(crate) struct Parked {
    file: File,
}

impl Spool {
    /// Bytes that are all there.
    pub(crate) fn in_memory(head: &[u8], body: &[u8]) -> Self {
        let bytes: Bytes = [head, body].concat().into();
        let payload = Payload {
            digest: Digest::of(&bytes),
            bytes: bytes.len() as u64,
        };
        Self {
            head_bytes: head.len(),
            payload,
            bytes,
            disk: None,
        }
    }

    /// Digest and size of head and body.
    pub(crate) fn payload(&self) -> Payload {
        self.payload
    }

    /// Number of bytes of the body.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.payload.bytes - self.head_bytes as u64
    }

    /// A reader over the body.
    pub(crate) fn body_reader(&self) -> Box<dyn Read + Send> {
        self.body_reader_at(0)
    }

    /// A reader over the body from a place on.
    pub(crate) fn body_reader_at(&self, at: u64) -> Box<dyn Read + Send> {
        let at = self.payload.bytes.min(self.head_bytes as u64 + at);
        match &self.disk {
            None => {
                let at = usize::try_from(at)
                    .unwrap_or(usize::MAX)
                    .min(self.bytes.len());
                Box::new(io::Cursor::new(self.bytes.slice(at..)))
            }
            Some(parked) => Box::new(DiskReader {
                parked: Arc::clone(parked),
                at,
                end: self.payload.bytes,
            }),
        }
    }

    /// The body as something to send.
    pub(crate) fn body(&self) -> Body {
        match &self.disk {
            None => full(self.bytes.slice(self.head_bytes..)),
            Some(parked) => DiskReader {
                parked: Arc::clone(parked),
                at: self.head_bytes as u64,
                end: self.payload.bytes,
            }
            .boxed_unsync(),
        }
    }

    /// Makes the bytes durable under their digest, to outlive this process.
    pub(crate) fn keep(&self, blobs: &Blobs) -> io::Result<()> {
        // Written anew also when it is there: what is there may not be durable, or not whole.
        match &self.disk {
            None => blobs.put(&self.bytes).map(|_| ()),
            Some(parked) => {
                let mut reader = DiskReader {
                    parked: Arc::clone(parked),
                    at: 0,
                    end: self.payload.bytes,
                };
                let mut writer = blobs.writer()?;
                io::copy(&mut reader, &mut writer)?;
                let (digest, _) = writer.finish()?;
                if digest == self.payload.digest {
                    Ok(())
                } else {
                    Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the parked bytes changed on disk",
                    ))
                }
            }
        }
    }
}

/// A spool under way.
pub(crate) enum Spooler<'a> {
    /// In memory so far.
    Memory {
        blobs: &'a Blobs,
        head_bytes: usize,
        bytes: Vec<u8>,
    },
    /// On disk.
    Disk {
        head_bytes: usize,
        parked: Arc<Parked>,
        hash: Sha256,
        bytes: u64,
    },
}

/// What is on disk of a body that still comes.
pub(crate) struct Written {
    parked: Arc<Parked>,
    head_bytes: u64,
    end: u64,
}

impl Written {
    /// Number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.head_bytes
    }

    /// A reader over them from a place on.
    pub(crate) fn reader_at(&self, at: u64) -> Box<dyn Read + Send> {
        Box::new(DiskReader {
            parked: Arc::clone(&self.parked),
            at: self.end.min(self.head_bytes + at),
            end: self.end,
        })
    }
}

impl<'a> Spooler<'a> {
    /// Starts with the head.
    pub(crate) fn new(blobs: &'a Blobs, head: Vec<u8>) -> Self {
        Self::Memory {
            blobs,
            head_bytes: head.len(),
            bytes: head,
        }
    }

    /// Adds a piece of the body.
    pub(crate) fn add(self, piece: &[u8]) -> io::Result<Self> {
        match self {
            Self::Memory {
                blobs,
                head_bytes,
                mut bytes,
            } => {
                if bytes.len() + piece.len() <= MEMORY_BYTES_MAX {
                    bytes.extend_from_slice(piece);
                    return Ok(Self::Memory {
                        blobs,
                        head_bytes,
                        bytes,
                    });
                }
                let file = nameless(blobs)?;
                Self::Disk {
                    head_bytes,
                    parked: Arc::new(Parked { file }),
                    hash: Sha256::new(),
                    bytes: 0,
                }
                .add(&bytes)?
                .add(piece)
            }
            Self::Disk {
                head_bytes,
                parked,
                mut hash,
                bytes,
            } => {
                (&parked.file).write_all(piece)?;
                hash.update(piece);
                Ok(Self::Disk {
                    head_bytes,
                    parked,
                    hash,
                    bytes: bytes + piece.len() as u64,
                })
            }
        }
    }

    /// What is on disk so far, once something is.
    pub(crate) fn written(&self) -> Option<Written> {
        match self {
            Self::Memory { .. } => None,
            Self::Disk {
                head_bytes,
                parked,
                bytes,
                ..
            } => Some(Written {
                parked: Arc::clone(parked),
                head_bytes: *head_bytes as u64,
                end: *bytes,
            }),
        }
    }

    /// All bytes are there.
    pub(crate) fn finish(self) -> io::Result<Spool> {
        match self {
            Self::Memory {
                head_bytes, bytes, ..
            } => {
                let payload = Payload {
                    digest: Digest::of(&bytes),
                    bytes: bytes.len() as u64,
                };
                Ok(Spool {
                    head_bytes,
                    payload,
                    bytes: bytes.into(),
                    disk: None,
                })
            }
            Self::Disk {
                head_bytes,
                parked,
                hash,
                bytes,
            } => Ok(Spool {
                head_bytes,
                payload: Payload {
                    digest: Digest(hash.finalize().into()),
                    bytes,
                },
                bytes: Bytes::new(),
                disk: Some(parked),
            }),
        }
    }
}

/// A private file that has no name any more.
fn nameless(blobs: &Blobs) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = blobs.path(&Digest::of(
        format!("{}-{number}", std::process::id()).as_bytes(),
    ));
    let path = path.with_extension("spool");
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A body that is all there.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    http_body_util::Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Bytes read from disk in pieces.
struct DiskReader {
    parked: Arc<Parked>,
    at: u64,
    end: u64,
}

impl Read for DiskReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let want = buffer.len().min(left);
        let n = self
            .parked
            .file
            .read_at(buffer.get_mut(..want).unwrap_or_default(), self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl http_body::Body for DiskReader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        let want = usize::try_from(self.end - self.at)
            .unwrap_or(PIECE_BYTES)
            .min(PIECE_BYTES);
        let mut piece = vec![0; want];
        let read = self.parked.file.read_at(&mut piece, self.at);
        Poll::Ready(Some(match read {
            Ok(0) => Err("the parked bytes were cut short".into()),
            Ok(n) => {
                self.at += n as u64;
                piece.truncate(n);
                Ok(Frame::data(piece.into()))
            }
            Err(error) => Err(error.into()),
        }))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.end - self.at)
    }

    fn is_end_stream(&self) -> bool {
        self.at >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            scheme: "https",
            host: "a.example".into(),
            port: 443,
            path: "/x".into(),
        }
    }

    #[test]
    fn a_head_is_read_back() {
        let mut headers = HeaderMap::new();
        headers.insert("x-b", HeaderValue::from_static("2"));
        headers.insert("date", HeaderValue::from_static("today"));
        headers.append("a", HeaderValue::from_static("1: one"));
        headers.append("a", HeaderValue::from_bytes(b"\xff").unwrap());
        let head = head("POST", &target(), &headers);
        let (first, read, bytes) = read_head(&[&head[..], b"body\n\n"].concat()).unwrap();
        assert_eq!(first, "POST https://a.example/x");
        assert_eq!(bytes, head.len());
        headers.remove("date");
        assert_eq!(read, headers);
        let bare = super::head("GET", &target(), &HeaderMap::new());
        assert_eq!(read_head(&bare).unwrap().2, bare.len());
    }

    #[tokio::test]
    async fn large_bodies_lie_on_disk_and_go_away() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open_dir(dir.path()).unwrap();
        let head = head("PUT", &target(), &HeaderMap::new());
        let body = vec![7u8; MEMORY_BYTES_MAX + 5];
        let mut spooler = Spooler::new(&blobs, head.clone());
        for piece in body.chunks(10_000) {
            spooler = spooler.add(piece).unwrap();
        }
        let spool = spooler.finish().unwrap();
        let whole = [head.as_slice(), &body].concat();
        assert_eq!(spool.payload().digest, Digest::of(&whole));
        assert_eq!(spool.body().collect().await.unwrap().to_bytes(), body);
        let path = blobs.path(&spool.payload().digest);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        spool.keep(&blobs).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), whole);
    }
}
