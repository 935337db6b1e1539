//! Looking into what would leave: every byte of it as it is, and its body once more without its
//! content coding.

use std::io::{self, Read};

use ::http::HeaderMap;
use kernel::{Carried, Scanner};

use crate::spool::Spool;

/// A coded body may grow to this size when it is decoded; what grows more is not looked into,
/// and refused.
const DECODED_BYTES_MAX: u64 = 4 << 30;
/// Codings one within the other.
const CODINGS_MAX: usize = 4;

/// What the scan found, or why the bytes cannot be looked into.
pub(crate) fn scan(
    scanner: &Scanner,
    line: [&str; 3],
    headers: &HeaderMap,
    spool: &Spool,
) -> Result<Carried, String> {
    let mut found = Carried::nothing();
    for part in line {
        found.merge(&scanner.scan(part.as_bytes()));
    }
    for (name, value) in headers {
        // One scan each: a token does not span two headers.
        found.merge(&scanner.scan(name.as_str().as_bytes()));
        found.merge(&scanner.scan(value.as_bytes()));
        if let Some(decoded) = basic(value.as_bytes()) {
            found.merge(&scanner.scan(&decoded));
        }
    }
    if spool.body_bytes() > 0 {
        let wrong = |e: io::Error| format!("the parked bytes cannot be read: {e}");
        found.merge(&scan_reader(scanner, spool.body_reader()).map_err(wrong)?);
        if let Some(reader) = decoded(headers, spool.body_reader())? {
            let bounded = reader.take(DECODED_BYTES_MAX + 1);
            let mut counted = Counted {
                inner: bounded,
                bytes: 0,
            };
            found.merge(
                &scan_reader(scanner, &mut counted).map_err(|e| {
                    format!("the body is not what its `Content-Encoding` says: {e}")
                })?,
            );
            if counted.bytes > DECODED_BYTES_MAX {
                return Err("the body grows too large when it is decoded".into());
            }
        }
    }
    Ok(found)
}

/// A reader without the content codings a message declares; `None` when it declares none that
/// are known here.
pub(crate) fn decoded(
    headers: &HeaderMap,
    body: Box<dyn Read + Send>,
) -> Result<Option<Box<dyn Read + Send>>, String> {
    let codings = codings(headers);
    if codings.len() > CODINGS_MAX {
        return Err("there are too many content codings one within the other".into());
    }
    let mut reader = body;
    let mut any = false;
    // The last one named was applied last.
    for coding in codings.iter().rev() {
        reader = match coding.as_str() {
            "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(reader)),
            "deflate" => Box::new(Inflate::new(reader)),
            "br" => Box::new(brotli::Decompressor::new(reader, 16 << 10)),
            "zstd" => match ruzstd::decoding::StreamingDecoder::new(reader) {
                Ok(decoder) => Box::new(decoder),
                Err(e) => {
                    return Err(format!(
                        "the body is not what its `Content-Encoding` says: {e}"
                    ));
                }
            },
            "identity" => continue,
            other => {
                return Err(format!(
                    "the content coding `{other}` cannot be looked into; send the body as it is, or with gzip, \
                     deflate, br or zstd"
                ));
            }
        };
        any = true;
    }
    Ok(any.then_some(reader))
}

/// Whether a body has a content coding at all.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    codings(headers).iter().any(|coding| coding != "identity")
}

fn codings(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all("content-encoding")
        .iter()
        .flat_map(|v| v.as_bytes().split(|b| *b == b','))
        .map(|c| String::from_utf8_lossy(c).trim().to_ascii_lowercase())
        .filter(|c| !c.is_empty())
        .collect()
}

/// User name and password of basic authentication.
pub(crate) fn basic(value: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, coded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    base64::engine::general_purpose::STANDARD
        .decode(coded.trim())
        .ok()
}

fn scan_reader(scanner: &Scanner, mut reader: impl Read) -> io::Result<Carried> {
    let mut scan = scanner.start();
    let mut piece = vec![0; 64 << 10];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(scan.finish()),
            Ok(n) => scan.feed(piece.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

/// `deflate` means zlib by the book and raw deflate by some; the first byte tells.
struct Inflate {
    source: Option<Box<dyn Read + Send>>,
    decoder: Option<Box<dyn Read + Send>>,
}

impl Inflate {
    fn new(source: Box<dyn Read + Send>) -> Self {
        Self {
            source: Some(source),
            decoder: None,
        }
    }
}

impl Read for Inflate {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(mut source) = self.source.take() {
            let mut first = [0; 1];
            let n = source.read(&mut first)?;
            let zlib = n == 1 && first[0] & 0x0f == 8;
            let whole = io::Cursor::new(first).take(n as u64).chain(source);
            self.decoder = Some(if zlib {
                Box::new(flate2::read::ZlibDecoder::new(whole))
            } else {
                Box::new(flate2::read::DeflateDecoder::new(whole))
            });
        }
        match &mut self.decoder {
            Some(decoder) => decoder.read(buffer),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;
    use std::io::Write as _;

    fn through(coding: &'static str, coded: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", HeaderValue::from_static(coding));
        let Some(mut reader) = decoded(&headers, Box::new(io::Cursor::new(coded)))? else {
            return Err("unknown".into());
        };
        let mut out = Vec::new();
        reader.read_to_end(&mut out).map_err(|e| e.to_string())?;
        Ok(out)
    }

    #[test]
    fn codings_are_undone() {
        let plain = b"hunter2-is-the-password".repeat(50);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&plain).unwrap();
        let gz = gz.finish().unwrap();
        let mut zl = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zl.write_all(&plain).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(&plain).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(
            &plain[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let mut br = Vec::new();
        brotli::CompressorWriter::new(&mut br, 4096, 3, 20)
            .write_all(&plain)
            .unwrap();
        assert_eq!(through("gzip", gz.clone()).unwrap(), plain);
        assert_eq!(through("deflate", zl.finish().unwrap()).unwrap(), plain);
        assert_eq!(through("deflate", raw.finish().unwrap()).unwrap(), plain);
        assert_eq!(through("zstd", zstd).unwrap(), plain);
        assert_eq!(through("br", br).unwrap(), plain);
        let mut twice = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        twice.write_all(&gz).unwrap();
        assert_eq!(
            through("gzip, gzip", twice.finish().unwrap()).unwrap(),
            plain
        );
        assert!(through("gzip", plain.clone()).is_err());
        assert!(through("zstd", plain).is_err());
        assert!(through("gzip, gzip, gzip, gzip, gzip", Vec::new()).is_err());
    }
}
