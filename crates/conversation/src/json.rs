//! Lenient reading of JSON values: what is missing or of another type is simply not there.

use crate::item::ReadError;
use serde_json::{Map, Value};

/// Parses `bytes`. Broken UTF-8 and unpaired surrogates, which agents send when they cut a text in
/// the middle of a character, become replacement characters.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(first) => {
            let text = String::from_utf8_lossy(bytes);
            serde_json::from_str(&without_lone_surrogates(&text)).map_err(|_| first)
        }
    }
}

pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, ReadError> {
    match parse(bytes)? {
        Value::Object(map) => Ok(map),
        _ => Err(ReadError::NotAnObject),
    }
}

pub(crate) fn text(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key).and_then(Value::as_str).map(str::to_owned)
}

pub(crate) fn text_or_empty(map: &Map<String, Value>, key: &str) -> String {
    text(map, key).unwrap_or_default()
}

pub(crate) fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

pub(crate) fn list<'a>(map: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    map.get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The objects in the list at `key`.
pub(crate) fn objects<'a>(
    map: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a Map<String, Value>> {
    list(map, key).iter().filter_map(Value::as_object)
}

pub(crate) fn child<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    map.get(key).and_then(Value::as_object)
}

/// The text in `value`: itself, or of its parts, one a line.
pub(crate) fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<String> = parts
                .iter()
                .map(flat)
                .filter(|text| !text.is_empty())
                .collect();
            texts.join("\n")
        }
        Value::Object(part) => {
            if let Some(image) = attachment(part) {
                return image;
            }
            let keys = ["text", "content", "output", "stdout", "stderr", "refusal"];
            let texts: Vec<String> = keys
                .iter()
                .filter_map(|key| part.get(*key))
                .map(flat)
                .collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// An image, a sound or a file as a reference: what it is, how large, and where it is or which
/// bytes it has. Nothing when `part` is no attachment.
pub(crate) fn attachment(part: &Map<String, Value>) -> Option<String> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("");
    let source = match kind {
        "image" | "document" => {
            let source = child(part, "source").unwrap_or(part);
            if text_or_empty(source, "type") == "text" || source.contains_key("content") {
                return None;
            }
            source
        }
        "input_image"
        | "image_url"
        | "input_audio"
        | "input_file"
        | "file"
        | "computer_screenshot" => {
            let inner = ["image_url", "input_audio", "file"];
            inner
                .iter()
                .find_map(|key| child(part, key))
                .unwrap_or(part)
        }
        "" => ["inlineData", "inline_data", "fileData", "file_data"]
            .iter()
            .find_map(|key| child(part, key))?,
        _ => return None,
    };
    let first = |keys: &[&str]| keys.iter().find_map(|key| text(source, key));
    let address = first(&[
        "url",
        "image_url",
        "file_url",
        "fileUri",
        "file_uri",
        "file_id",
    ]);
    let media = first(&["media_type", "mimeType", "mime_type", "format", "filename"]);
    let data = first(&["data", "file_data"]);
    let (media, data) = match address.as_deref().and_then(|url| url.strip_prefix("data:")) {
        Some(url) => {
            let (media, data) = url.split_once(',').unwrap_or((url, ""));
            let media = media.split(';').next().unwrap_or_default();
            (Some(media.to_owned()), Some(data.to_owned()))
        }
        None => (media, data),
    };
    let media = media.filter(|media| !media.is_empty());
    let media = media.unwrap_or_else(|| if kind.is_empty() { "file" } else { kind }.to_owned());
    Some(match (data, address) {
        (Some(data), _) => {
            let digest = kernel::Digest::of(data.as_bytes()).hex();
            let short = digest.get(..16).unwrap_or(&digest);
            format!("[attachment {media}, {} characters, {short}]", data.len())
        }
        (None, Some(address)) => format!("[attachment {media}, {address}]"),
        (None, None) => format!("[attachment {media}]"),
    })
}

/// Every `\uD800`-`\uDFFF` escape without its other half becomes `\uFFFD`.
fn without_lone_surrogates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let taken = match surrogate(escape) {
            Some(0xd800..=0xdbff) => {
                let second = escape.get(6..).and_then(surrogate);
                if matches!(second, Some(0xdc00..=0xdfff)) {
                    Some(12)
                } else {
                    None
                }
            }
            Some(_) => None,
            // Any other escape is two bytes, the second of which may be several.
            None => Some(1 + escape.chars().nth(1).map_or(0, char::len_utf8)),
        };
        match taken.and_then(|n| escape.split_at_checked(n)) {
            Some((kept, after)) => {
                out.push_str(kept);
                rest = after;
            }
            None => {
                out.push_str("\\ufffd");
                rest = escape.get(6..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

/// The surrogate that `escape` begins with.
fn surrogate(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16)
        .ok()
        .filter(|code| (0xd800..=0xdfff).contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_characters_are_read() {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        assert_eq!(read(r#""a\ud83d""#), "a\u{fffd}");
        assert_eq!(
            read(r#""\ud83d\ude00\udc00\\ud83d\n""#),
            "😀\u{fffd}\\ud83d\n"
        );
        assert_eq!(parse(b"\"\xff\"").unwrap(), "\u{fffd}");
        assert!(parse(br#""\ud83"#).is_err());
    }
}
