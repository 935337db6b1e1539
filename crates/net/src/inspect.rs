//! Looking into what would leave: every byte of it as it is, and its body once more without its
//! content coding.

use std::io::{self, Read};

use ::http::HeaderMap;
use kernel::{Carried, Scanner};

use crate::ahead::Ahead;
use crate::spool::Spool;
use crate::unpack::{self, Budget};

/// The values of a form up to this size are also searched put together.
const FORM_BYTES_MAX: u64 = 1 << 20;
/// Codings one within the other.
const CODINGS_MAX: usize = 4;

/// What the scan found, or why the bytes cannot be looked into. What of the body was searched ahead is not
/// searched again.
pub(crate) fn scan(
    scanner: &Scanner,
    line: [&str; 3],
    headers: &HeaderMap,
    spool: &Spool,
    ahead: Option<Ahead>,
) -> Result<Carried, String> {
    let [method, name, target] = line;
    let lines = headers.iter();
    let lines = lines.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let mut found = scanner.scan_head(name, target, lines);
    found.merge(&scanner.scan(method.as_bytes()));
    for value in headers.values() {
        if let Some(decoded) = basic(value.as_bytes()) {
            found.merge(&scanner.scan(&decoded));
        }
    }
    if spool.body_bytes() == 0 {
        return Ok(found);
    }
    if let Some(form) = form(headers, spool)? {
        found.merge(&scanner.scan_form(&form));
    }
    let body = |at: u64| -> io::Result<Box<dyn Read + Send>> { Ok(spool.body_reader_at(at)) };
    let mut budget = Budget::default();
    let bytes = spool.body_bytes();
    found.merge(&unpack::scan_sized(
        scanner,
        &body,
        bytes,
        ahead,
        &mut budget,
    )?);
    if decoded(headers, spool.body_reader())?.is_some() {
        let plain = |at: u64| -> io::Result<Box<dyn Read + Send>> {
            let mut reader = decoded(headers, spool.body_reader())
                .map_err(io::Error::other)?
                .unwrap_or_else(|| Box::new(io::empty()));
            io::copy(&mut (&mut reader).take(at), &mut io::sink())?;
            Ok(reader)
        };
        let coded = unpack::scan(scanner, &plain, unpack::DEPTH, &mut budget)
            .map_err(|e| format!("the body is not what its `Content-Encoding` says: {e}"))?;
        found.merge(&coded);
    }
    Ok(found)
}

/// A form in the body, when it is one.
fn form(headers: &HeaderMap, spool: &Spool) -> Result<Option<Vec<u8>>, String> {
    let is_form = headers.get("content-type").is_some_and(|kind| {
        kind.as_bytes()
            .to_ascii_lowercase()
            .starts_with(b"application/x-www-form-urlencoded")
    });
    if !is_form || spool.body_bytes() > FORM_BYTES_MAX {
        return Ok(None);
    }
    let mut form = Vec::new();
    spool
        .body_reader()
        .read_to_end(&mut form)
        .map_err(|e| format!("the parked bytes cannot be read: {e}"))?;
    Ok(Some(form))
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

    /// Whether a request with these parts carries the one secret.
    fn carries(host: &str, target: &str, pairs: &[(&'static str, &str)], body: &str) -> bool {
        let mut sensitive = kernel::sensitive::Sensitive::default();
        let event = kernel::EventId(1);
        sensitive.add_text(
            "S3cret-Value-42x",
            kernel::Level::Critical,
            &kernel::Source::Task,
            event,
        );
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let spool = Spool::in_memory(b"", body.as_bytes());
        let found = scan(
            &sensitive.scanner(),
            ["POST", host, target],
            &headers,
            &spool,
            None,
        )
        .unwrap();
        !found.is_empty()
    }

    #[test]
    fn a_secret_in_pieces_is_found() {
        let host = "api.example";
        for (name, found) in [
            (
                "labels",
                carries("s3cr.et-va.lue-42x.example", "/", &[], ""),
            ),
            (
                "base32 labels",
                carries("kmzwg4tfo.qwvmylmov.ss2nbsp.a.example", "/", &[], ""),
            ),
            ("segments", carries(host, "/S3cret/-Value/-42x", &[], "")),
            (
                "query",
                carries(host, "/?a=S3cret&b=-Val&c=ue-42x", &[], ""),
            ),
            (
                "names",
                carries(host, "/?S3cret=1&-Val=1&ue-42x=1", &[], ""),
            ),
            (
                "headers",
                carries(host, "/", &[("x-a", "S3cret-Va"), ("x-b", "lue-42x")], ""),
            ),
            (
                "cookies",
                carries(host, "/", &[("cookie", "a=S3cret-V; b=alue-42x")], ""),
            ),
            (
                "path, then query",
                carries(host, "/S3cret?a=-Value-42x", &[], ""),
            ),
            (
                "host, then path",
                carries("s3cret.-value", "/-42x", &[], ""),
            ),
            (
                "form",
                carries(
                    host,
                    "/",
                    &[("content-type", "application/x-www-form-urlencoded")],
                    "a=S3cret-V&b=alue-42x",
                ),
            ),
        ] {
            assert!(found, "{name}");
        }
        assert!(!carries(host, "/a?b=c", &[("x-a", "S3cret-Va")], "lue-42"));
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
