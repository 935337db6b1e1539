//! From a harness's words to effects and content.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::policy::Policy;
use kernel::{
    Carried, Channel, Class, Content, Digest, Effect, EventId, FileOp, HoldId, Incoming, Leaf,
    Object, Operation, Payload, Scanner, Source,
};
use serde_json::Value;
use url::Url;

use crate::reply::Mistake;
use crate::request::{self, ChangeKind, Data};
use crate::stdio::Outside;

/// Arguments and answers are not nested deeper.
const DEPTH_MAX: usize = 64;
/// What people are shown of a call's arguments, in characters.
const ABOUT_CHARACTERS_MAX: usize = 200;

/// The name of the tree that a harness's files are in.
const TREE: &str = "workspace";

/// Content as the kernel takes it.
///
/// # Errors
/// When data is nested too deeply.
pub fn incoming(request: request::Incoming) -> Result<Incoming, Mistake> {
    let (channel, source) = match request.source {
        request::Source::Task => (Channel::Term, Source::Task),
        request::Source::Tool(name) => (Channel::Tool, Source::Tool(name)),
        request::Source::Party(host) => (Channel::Net, Source::Party(host.to_lowercase())),
        request::Source::Location(path) => (
            Channel::File,
            Source::Location {
                tree: TREE.to_string(),
                path: relative(&path)?,
            },
        ),
    };
    let content = Content::new(request.text.into_bytes());
    let mut incoming = Incoming::new(channel, source, content);
    if let Some(Data(json)) = &request.json {
        incoming.leaves = leaves(json)?;
    }
    incoming.answers = request.answers.map(EventId);
    Ok(incoming)
}

/// An effect, and the bytes that would leave.
#[derive(Debug)]
pub struct Proposed {
    /// The effect.
    pub effect: Effect,
    /// What would leave, in canonical form.
    pub bytes: Vec<u8>,
    /// Of a request, what the canonical form does not say as it is.
    sent: Sent,
}

#[derive(Debug, Default)]
struct Sent {
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// The effect that a harness proposes.
///
/// # Errors
/// What is missing or contradicts itself.
pub fn proposed(
    request: request::Propose,
    policy: &Policy,
    scanner: &Scanner,
    outside: &dyn Outside,
) -> Result<Proposed, Mistake> {
    let saw = request
        .saw
        .iter()
        .map(|name| hold(name))
        .collect::<Result<Vec<_>, _>>()?;
    let mut proposed = match (request.tool, request.request, request.change) {
        (Some(tool), None, None) => call(tool, request.arguments, policy)?,
        (None, Some(http), None) => sent(http, policy, outside)?,
        (None, None, Some(change)) => changed(change)?,
        _ => {
            return Err(Mistake::new(
                "a proposal names one thing to be done",
                "give exactly one of `tool`, `request` and `change`",
            ));
        }
    };
    proposed.effect.saw = saw;
    proposed.effect.carries = carried(scanner, &proposed, outside)?;
    Ok(proposed)
}

/// Reads a hold's name.
///
/// # Errors
/// When it is none.
pub fn hold(name: &str) -> Result<HoldId, Mistake> {
    name.parse().map_err(|()| {
        Mistake::new(
            format!("`{name}` is no hold"),
            "a hold is written as it was answered: `h12`",
        )
    })
}

fn call(tool: String, arguments: Option<Data>, policy: &Policy) -> Result<Proposed, Mistake> {
    let arguments = match arguments {
        None | Some(Data(Value::Null)) => Value::Object(serde_json::Map::new()),
        Some(Data(object @ Value::Object(_))) => object,
        Some(_) => {
            return Err(Mistake::new(
                "`arguments` is not an object",
                "give the tool's arguments by name: `{\"recipient\": \"…\"}`",
            ));
        }
    };
    exact(&arguments)?;
    let leaves = arguments_of(&arguments)?;
    // RFC 8785: one text for one meaning, so that the digest stands for the arguments.
    let bytes = canonical(&arguments)?;
    let class = policy
        .tool(&tool)
        .map_or(Class::Blocking, |rule| rule.class);
    let mut about = String::from_utf8_lossy(&bytes).into_owned();
    if let Some((cut, _)) = about.char_indices().nth(ABOUT_CHARACTERS_MAX) {
        about.truncate(cut);
        about.push('…');
    }
    let mut effect = Effect::new(
        Channel::Tool,
        Operation::Call,
        Object::Tool { name: tool },
        class,
    );
    effect.arguments = leaves;
    effect.payload = payload(&bytes);
    effect.about = about;
    Ok(Proposed {
        effect,
        bytes,
        sent: Sent::default(),
    })
}

fn canonical(value: &Value) -> Result<Vec<u8>, Mistake> {
    serde_json_canonicalizer::to_vec(value).map_err(|error| {
        Mistake::new(
            format!("this has no canonical form: {error}"),
            "numbers have to be finite",
        )
    })
}

/// The canonical form writes numbers as they are in IEEE 754, so two of them must not look the same
/// in it: one would be approved and the other sent.
fn exact(value: &Value) -> Result<(), Mistake> {
    const INTEGER_MAX: u64 = 1 << 53;
    match value {
        Value::Number(number) => {
            let integer = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
            let float = number.as_f64().unwrap_or(f64::INFINITY);
            if integer.map_or(float.abs() < INTEGER_MAX as f64, |size| size <= INTEGER_MAX) {
                return Ok(());
            }
            Err(Mistake::new(
                format!("the number {number} is too large to be exact"),
                "write it as a text",
            ))
        }
        Value::Array(items) => items.iter().try_for_each(exact),
        Value::Object(map) => map.values().try_for_each(exact),
        _ => Ok(()),
    }
}

fn sent(
    request: request::Request,
    policy: &Policy,
    outside: &dyn Outside,
) -> Result<Proposed, Mistake> {
    let url = Url::parse(&request.url).map_err(|error| {
        Mistake::new(
            format!("`{}` is no URL: {error}", request.url),
            "give an absolute one: `https://api.example/v1/items`",
        )
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Mistake::new(
            "the URL carries a user name or a password",
            "a decision is about what is sent and to whom; send credentials in another way",
        ));
    }
    let web = matches!(url.scheme(), "http" | "https" | "ws" | "wss");
    let (true, Some(host), Some(port @ 1..)) = (web, url.host_str(), url.port_or_known_default())
    else {
        return Err(Mistake::new(
            format!("`{}` names no host and port of the web", request.url),
            "give a URL with `http://` or `https://`",
        ));
    };
    if request.method.is_empty() || !request.method.bytes().all(token) {
        return Err(Mistake::new(
            format!("`{}` is no method", request.method.escape_debug()),
            "give one word, such as `GET` or `POST`",
        ));
    }
    let method = request.method.to_ascii_uppercase();
    let host = host
        .trim_matches(['[', ']'])
        .trim_end_matches('.')
        .to_string();
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_string(),
    };
    let path = outside.target(&path).map_err(|why| {
        Mistake::new(
            format!("`{}` cannot be judged: {why}", request.url),
            "give the path in a form that can be read in one way only",
        )
    })?;
    let class = if policy.needs_answer(&host, port, &method, &path) {
        Class::Blocking
    } else {
        Class::Stallable
    };
    let sent = outgoing(&request)?;
    if let Some(named) = sent.headers.get("host") {
        let same = outside
            .authority(named)
            .map(|(name, at)| name == host && at.unwrap_or(port) == port);
        if same != Ok(true) {
            return Err(Mistake::new(
                format!(
                    "the `Host` header names `{}`, but the URL `{host}:{port}`",
                    named.escape_debug()
                ),
                "leave `Host` out, or let it name what the URL names: the decision is about one party",
            ));
        }
    }
    let about = match sent.body.len() {
        0 => "no body".to_string(),
        bytes => format!("{bytes} bytes"),
    };
    let object = Object::Party {
        scheme: url.scheme().to_string(),
        host,
        port,
        path,
    };
    // A text alone stands for itself; anything more is written down in one way.
    let bytes = if sent.headers.is_empty() && request.body_base64.is_none() {
        request.body.into_bytes()
    } else {
        let mut whole = serde_json::Map::new();
        whole.insert("headers".into(), serde_json::json!(sent.headers));
        match request.body_base64 {
            Some(_) => whole.insert("body_base64".into(), BASE64.encode(&sent.body).into()),
            None => whole.insert("body".into(), request.body.into()),
        };
        canonical(&Value::Object(whole))?
    };
    let mut effect = Effect::new(Channel::Net, Operation::Request(method), object, class);
    effect.payload = payload(&bytes);
    effect.about = about;
    Ok(Proposed {
        effect,
        bytes,
        sent,
    })
}

/// Whether a byte may stand in a method or in the name of a header (RFC 9110, `tchar`).
fn token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Headers in lower case, and the body as bytes.
fn outgoing(request: &request::Request) -> Result<Sent, Mistake> {
    let mut headers = BTreeMap::new();
    let given = match &request.headers {
        None | Some(Data(Value::Null)) => &serde_json::Map::new(),
        Some(Data(Value::Object(map))) => map,
        Some(_) => {
            return Err(Mistake::new(
                "`headers` is not an object",
                "give each header by its name: `{\"content-type\": \"text/plain\"}`",
            ));
        }
    };
    for (name, value) in given {
        let Value::String(value) = value else {
            return Err(Mistake::new(
                format!("the header `{}` is no text", name.escape_debug()),
                "write its value as a text; join several values with commas",
            ));
        };
        if name.is_empty() || !name.bytes().all(token) || value.contains(['\r', '\n', '\0']) {
            return Err(Mistake::new(
                format!("`{}` is no header", name.escape_debug()),
                "give each by name and value, without line breaks",
            ));
        }
        let name = name.to_ascii_lowercase();
        if name == "transfer-encoding" {
            return Err(Mistake::new(
                format!(
                    "`{name}: {}` says how a body is cut, not what is sent",
                    value.escape_debug()
                ),
                "leave it out; give the body as a whole",
            ));
        }
        let coded = value.split(',').any(|coding| {
            let coding = coding.trim();
            !coding.is_empty() && !coding.eq_ignore_ascii_case("identity")
        });
        if name == "content-encoding" && coded {
            return Err(Mistake::new(
                format!("the body is packed (`{value}`) and cannot be looked into"),
                "propose the request with its body unpacked, and without `content-encoding`",
            ));
        }
        if headers.insert(name, value.clone()).is_some() {
            return Err(Mistake::new(
                "two headers have the same name",
                "join their values with commas; case says nothing in names",
            ));
        }
    }
    let body = match &request.body_base64 {
        None => request.body.clone().into_bytes(),
        Some(_) if !request.body.is_empty() => {
            return Err(Mistake::new(
                "the request has two bodies",
                "give `body` for a text, or `body_base64` for any bytes",
            ));
        }
        Some(coded) => BASE64.decode(coded).map_err(|error| {
            Mistake::new(
                format!("`body_base64` is no base64: {error}"),
                "give the standard alphabet with padding, in one line",
            )
        })?,
    };
    let length = headers.get("content-length");
    if length.is_some_and(|length| length.trim() != body.len().to_string()) {
        return Err(Mistake::new(
            format!(
                "`content-length` is not the body's, which has {} bytes",
                body.len()
            ),
            "leave it out, or give the length in bytes",
        ));
    }
    Ok(Sent { headers, body })
}

fn changed(change: request::Change) -> Result<Proposed, Mistake> {
    let operation = match change.operation {
        ChangeKind::Create => FileOp::Create,
        ChangeKind::Modify => FileOp::Modify,
        ChangeKind::Delete => FileOp::Delete,
    };
    let object = Object::Location {
        tree: TREE.to_string(),
        path: relative(&change.path)?,
    };
    let bytes = change.content.into_bytes();
    let mut effect = Effect::new(
        Channel::File,
        Operation::File(operation),
        object,
        Class::Stageable,
    );
    effect.payload = payload(&bytes);
    effect.about = format!("{} bytes", bytes.len());
    Ok(Proposed {
        effect,
        bytes,
        sent: Sent::default(),
    })
}

/// What the bytes that would leave carry: object, and content as it is and leaf by leaf.
fn carried(
    scanner: &Scanner,
    proposed: &Proposed,
    outside: &dyn Outside,
) -> Result<Carried, Mistake> {
    if scanner.is_empty() {
        return Ok(Carried::nothing());
    }
    let within = |bytes: &[u8]| {
        outside.carried(scanner, bytes).map_err(|why| {
            Mistake::new(
                format!("this cannot be searched for what must not leave: {why}"),
                "propose it unpacked, or in smaller parts",
            )
        })
    };
    let mut carried = within(&proposed.bytes)?;
    let name = proposed.effect.operation.name();
    carried.merge(&scanner.scan(name.as_bytes()));
    let object = match &proposed.effect.object {
        Object::Party { host, path, .. } => {
            let Sent { headers, body } = &proposed.sent;
            carried.merge(&within(body)?);
            let headers = headers.iter();
            let headers = headers.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            scanner.scan_head(host, path, headers)
        }
        Object::Location { path, .. } => scanner.scan_path(path),
        Object::Tool { name } => scanner.scan(name.as_bytes()),
    };
    carried.merge(&object);
    let arguments = &proposed.effect.arguments;
    if arguments.len() > 1 {
        let joined: String = arguments.iter().map(|leaf| leaf.value.as_str()).collect();
        carried.merge(&scanner.scan(joined.as_bytes()));
    }
    Ok(carried)
}

fn payload(bytes: &[u8]) -> Payload {
    Payload {
        digest: Digest::of(bytes),
        bytes: bytes.len() as u64,
    }
}

/// A path below the workspace, with no way out of it.
fn relative(path: &str) -> Result<String, Mistake> {
    // What programs take for a place of its own, wherever they are.
    let home = path.starts_with('~') && (path == "~" || path.contains('/'));
    let drive =
        matches!(path.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
    if path.starts_with('/') || home || drive {
        return Err(Mistake::new(
            format!("`{}` is not below the workspace", path.escape_debug()),
            "give a path from the workspace on, `src/main.rs`; what lies elsewhere is a tool's to propose",
        ));
    }
    if path.contains('\0') {
        return Err(Mistake::new(
            format!("`{}` is no path", path.escape_debug()),
            "leave out the zero byte, where a path ends",
        ));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                return Err(Mistake::new(
                    format!("`{path}` may lead out of the workspace"),
                    "resolve `..` first; the decision is on the resolved path",
                ));
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err(Mistake::new(
            "the path is empty",
            "give a path below the workspace",
        ));
    }
    Ok(parts.join("/"))
}

/// Every value of something structured, with the way to it. What is null or empty has none. A dot
/// in a key is written `\u{ff0e}` in the way, so that nobody's key stands for two.
///
/// # Errors
/// When it is nested too deeply.
pub fn leaves(value: &Value) -> Result<Vec<Leaf>, Mistake> {
    let mut found = Vec::new();
    flatten(value, &mut String::new(), (DEPTH_MAX, false), &mut found)?;
    Ok(found)
}

/// As [`leaves`], for a call's arguments: a key below an argument that names no field
/// is a value of it as well (`{"to": {"bob@example.org": null}}`).
fn arguments_of(value: &Value) -> Result<Vec<Leaf>, Mistake> {
    let mut found = Vec::new();
    flatten(value, &mut String::new(), (DEPTH_MAX, true), &mut found)?;
    Ok(found)
}

/// Whether a key is the name of a field, not a value that somebody put there.
fn is_name(key: &str) -> bool {
    key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Whether nothing stands below a key, so that the key itself is what is said.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.iter().all(says_nothing),
        Value::Object(map) => map.values().all(says_nothing),
        Value::Number(_) => false,
    }
}

fn flatten(
    value: &Value,
    path: &mut String,
    (depth, keys): (usize, bool),
    found: &mut Vec<Leaf>,
) -> Result<(), Mistake> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Mistake::new(
            "the data is nested too deeply",
            format!("nest no deeper than {DEPTH_MAX} levels"),
        ));
    };
    let length = path.len();
    let mut below = |path: &mut String, key: &str, item: &Value| {
        if length > 0 {
            path.push('.');
        }
        path.push_str(&key.replace('.', "\u{ff0e}"));
        let result = flatten(item, path, (depth, keys), found);
        path.truncate(length);
        result
    };
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, item) in map {
                below(path, key, item)?;
            }
            if keys && depth < DEPTH_MAX - 1 {
                let values = map
                    .iter()
                    .filter(|(key, item)| !is_name(key) || says_nothing(item));
                found.extend(values.map(|(key, _)| Leaf::new(path.as_str(), key.as_str())));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                below(path, &index.to_string(), item)?;
            }
        }
        Value::String(text) => found.push(Leaf::new(path.as_str(), text.as_str())),
        scalar => found.push(Leaf::new(path.as_str(), scalar.to_string())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Level;
    use kernel::sensitive::Sensitive;

    fn request(line: Value) -> Result<Proposed, Mistake> {
        let mut sensitive = Sensitive::default();
        sensitive.add_text(
            "KEY=s3cr3t-0123456789abcdef\nBIN=\u{1}\u{2}x9\u{3}y8\u{4}",
            Level::Critical,
            &Source::Task,
            EventId(1),
        );
        let line = serde_json::json!({ "session": "s", "request": line });
        let propose = serde_json::from_value(line).unwrap();
        proposed(propose, &Policy::default(), &sensitive.scanner(), &Plain)
    }

    /// Takes the web as it is written; the program reads it as its channel does.
    struct Plain;

    impl Outside for Plain {
        fn load(&self, _: &crate::stdio::PolicyText) -> Result<crate::LoadedPolicy, String> {
            Err("no policy is read here".to_string())
        }

        fn keep(&self, _: &store::SessionDir, _: &crate::LoadedPolicy) -> Result<(), String> {
            Ok(())
        }

        fn view(&self, _: &monitor::View, _: &str) -> Value {
            Value::Null
        }

        fn authority(&self, text: &str) -> Result<(String, Option<u16>), String> {
            Ok((text.to_string(), None))
        }

        fn target(&self, path: &str) -> Result<String, String> {
            match path.contains("%2f") {
                true => Err("a slash is encoded".to_string()),
                false => Ok(path.to_string()),
            }
        }

        fn carried(&self, scanner: &Scanner, bytes: &[u8]) -> Result<Carried, String> {
            Ok(scanner.scan(bytes))
        }
    }

    #[test]
    fn headers_and_bytes_are_searched_and_told_apart() {
        let url = "https://sink.example/x";
        let plain = request(serde_json::json!({ "method": "POST", "url": url, "body": "x" }));
        let plain = plain.unwrap().effect;
        assert!(plain.carries.is_empty());
        let mut digests = vec![plain.payload.digest];
        for (line, carries) in [
            (
                serde_json::json!({ "headers": { "X-Key": "s3cr3t-0123456789abcdef" } }),
                true,
            ),
            (
                serde_json::json!({ "headers": { "a": "s3cr3t-0123", "b": "456789abcdef" } }),
                true,
            ),
            (
                serde_json::json!({ "headers": { "a": "text/plain" } }),
                false,
            ),
            (
                serde_json::json!({ "headers": { "a": "text/html" } }),
                false,
            ),
            (
                serde_json::json!({ "body_base64": BASE64.encode(b"\xff\x00s3cr3t-0123456789abcdef") }),
                true,
            ),
            (
                serde_json::json!({ "body_base64": BASE64.encode(b"\xff\x01\x02x9\x03y8\x04") }),
                true,
            ),
            (
                serde_json::json!({ "body_base64": BASE64.encode(b"\xff\x00") }),
                false,
            ),
        ] {
            let mut line = line;
            line["method"] = "POST".into();
            line["url"] = url.into();
            let effect = request(line.clone()).unwrap().effect;
            assert_eq!(!effect.carries.is_empty(), carries, "{line}");
            assert!(!digests.contains(&effect.payload.digest), "{line}");
            digests.push(effect.payload.digest);
        }
    }

    #[test]
    fn a_request_that_cannot_be_looked_into_is_a_mistake() {
        for line in [
            serde_json::json!({ "headers": { "Content-Encoding": "gzip" }, "body_base64": "AAAA" }),
            serde_json::json!({ "body": "x", "body_base64": "AAAA" }),
            serde_json::json!({ "body_base64": "A-A_" }),
            serde_json::json!({ "headers": { "a b": "x" } }),
            serde_json::json!({ "headers": { "a": "x\r\nb: y" } }),
            serde_json::json!({ "headers": { "a": "x", "A": "y" } }),
            serde_json::json!({ "headers": { "a": 1 } }),
            serde_json::json!({ "headers": ["a"] }),
            serde_json::json!({ "headers": { "host": "other.example" } }),
            serde_json::json!({ "headers": { "Transfer-Encoding": "chunked" } }),
            serde_json::json!({ "headers": { "content-length": "4" }, "body": "x" }),
            serde_json::json!({ "method": "G T" }),
            serde_json::json!({ "method": "GET / HTTP/1.1\r\nHost: other.example" }),
            serde_json::json!({ "method": "" }),
            serde_json::json!({ "url": "https://sink.example:0/" }),
            serde_json::json!({ "url": "ftp://sink.example/" }),
            serde_json::json!({ "url": "https://sink.example/a/..%2fb" }),
        ] {
            let mut whole =
                serde_json::json!({ "method": "POST", "url": "https://sink.example/x" });
            for (name, value) in line.as_object().unwrap() {
                whole[name] = value.clone();
            }
            assert!(request(whole).is_err(), "{line}");
        }
    }

    #[test]
    fn a_path_elsewhere_is_a_mistake() {
        for path in [
            "/etc/passwd",
            "/",
            "~",
            "~/x",
            "~root/x",
            "C:\\x",
            "c:/x",
            "a\0b",
            "",
            "a/../b",
        ] {
            assert!(relative(path).is_err(), "{path}");
        }
        assert_eq!(relative("./a//b").unwrap(), "a/b");
        assert_eq!(relative("~$draft.docx").unwrap(), "~$draft.docx");
    }
}
