//! What was tried. Everything an adapter tells the kernel is an allegation about bytes it saw;
//! the kernel draws the conclusions.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest as _, Sha256};

use crate::sensitive::Carried;
use crate::value::Gated;

/// One of the few ways across the boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Mediated trees.
    File,
    /// The network.
    Net,
    /// The terminal: the principal's words, the agent's text.
    Term,
    /// Tool calls of a harness or an MCP server.
    Tool,
}

impl Channel {
    /// The word for it in logs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Net => "net",
            Self::Term => "term",
            Self::Tool => "tool",
        }
    }
}

/// Number of an event within its session, from 1 in the order the monitor saw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// Name of a hold within its session; written `h7`. It is the number of the event that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

impl core::str::FromStr for HoldId {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        s.strip_prefix('h')
            .and_then(|n| n.parse().ok())
            .map(HoldId)
            .ok_or(())
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Lower-case hexadecimal, 64 characters.
    pub fn hex(&self) -> String {
        written(&self.0)
    }

    /// Reads what [`Digest::hex`] wrote.
    pub fn from_hex(s: &str) -> Option<Self> {
        let mut out = [0u8; 32];
        hex::decode_to_slice(s, &mut out).ok()?;
        Some(Self(out))
    }
}

/// Lower-case hexadecimal. On the way of every decision, so it allocates once.
pub(crate) fn written(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(
                DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0'),
            ));
        }
    }
    text
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// Where an incoming value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The principal's task.
    Task,
    /// The policy itself.
    Policy,
    /// A place in mediated state.
    Location {
        /// The tree's name, `workspace` for the workspace.
        tree: String,
        /// Path below the tree's root, without a leading slash.
        path: String,
    },
    /// Someone beyond the boundary, by host name in canonical form.
    Party(String),
    /// A tool of a harness, by name.
    Tool(String),
    /// The model provider's answers.
    Model(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task => f.write_str("your task"),
            Self::Policy => f.write_str("the policy"),
            Self::Location { tree, path } if tree == "workspace" => f.write_str(path),
            Self::Location { tree, path } => write!(f, "{tree}/{path}"),
            Self::Party(host) => f.write_str(host),
            Self::Tool(name) => write!(f, "tool {name}"),
            Self::Model(name) => write!(f, "the model ({name})"),
        }
    }
}

/// Content as it crossed, shared without copying.
#[derive(Clone, Debug)]
pub struct Content {
    /// The bytes; empty when only the digest is known.
    pub bytes: Arc<[u8]>,
    /// Digest of the whole content, also when `bytes` was cut short.
    pub digest: Digest,
}

impl Content {
    /// Content of these bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        Self { bytes, digest }
    }
}

/// One value of something structured, with the way to it: `files.3.id_`. Objects and lists are
/// flattened by the adapter; a text stands as it is, anything else as JSON writes it, and what is
/// null or empty has none. A full stop in a key is written `．` (U+FF0E).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Keys and positions (from 0), joined by dots; empty when the whole is one value.
    pub path: String,
    /// The value.
    pub value: String,
}

impl Leaf {
    /// A leaf.
    pub fn new(path: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            value: value.into(),
        }
    }
}

/// Something the agent was given.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The channel it came through.
    pub channel: Channel,
    /// Where it came from.
    pub source: Source,
    /// What it was.
    pub content: Content,
    /// The same content leaf by leaf, when it is structured; typed releases speak of these.
    pub leaves: Vec<Leaf>,
    /// The call whose answer it is, when the channel knows.
    pub answers: Option<EventId>,
    /// The hold whose staged state it is, which is the agent's own and not in place yet.
    pub layer: Option<HoldId>,
}

impl Incoming {
    /// Content that is plain text and answers nothing.
    pub fn new(channel: Channel, source: Source, content: Content) -> Self {
        Self {
            channel,
            source,
            content,
            leaves: Vec::new(),
            answers: None,
            layer: None,
        }
    }
}

/// How an effect can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// On a copy that only the agent sees.
    Stageable,
    /// At the boundary, behind a stub.
    Stallable,
    /// Only by waiting: the agent needs the real answer.
    Blocking,
}

impl Class {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stageable => "stageable",
            Self::Stallable => "stallable",
            Self::Blocking => "blocking",
        }
    }
}

/// What a change does to one location, net of everything in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileOp {
    /// A name that was not there before.
    Create,
    /// Other content, same name.
    Modify,
    /// The name goes away.
    Delete,
    /// Mode, owner, times or attributes only.
    Attributes,
}

/// What an effect does to its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A change of mediated state.
    File(FileOp),
    /// An HTTP request with this method, upper case.
    Request(String),
    /// A message on a connection that was upgraded (WebSocket), or a stream message.
    Message,
    /// A connection that is not HTTP, judged by destination only.
    Connect,
    /// A tool call.
    Call,
}

impl Operation {
    /// The word for it: `create`, `POST`, `message`, ...
    pub fn name(&self) -> &str {
        match self {
            Self::File(FileOp::Create) => "create",
            Self::File(FileOp::Modify) => "modify",
            Self::File(FileOp::Delete) => "delete",
            Self::File(FileOp::Attributes) => "attributes",
            Self::Request(method) => method,
            Self::Message => "message",
            Self::Connect => "connect",
            Self::Call => "call",
        }
    }

    /// Whether the operation only asks for something (GET, HEAD, OPTIONS).
    pub fn reads_only(&self) -> bool {
        matches!(self, Self::Request(m) if matches!(m.as_str(), "GET" | "HEAD" | "OPTIONS"))
    }
}

/// The outside target of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A place in mediated state.
    Location {
        /// The tree's name.
        tree: String,
        /// Path below the tree's root, without a leading slash.
        path: String,
    },
    /// Someone beyond the boundary.
    Party {
        /// `http`, `https`, `ws`, `wss` or `tcp`.
        scheme: String,
        /// Canonical host name or address: lower case, ASCII, no trailing dot.
        host: String,
        /// Port.
        port: u16,
        /// Canonical path with query (`/` at least); empty for what is not HTTP.
        path: String,
    },
    /// A tool.
    Tool {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Location { tree, path } if tree == "workspace" => f.write_str(path),
            Self::Location { tree, path } => write!(f, "{tree}/{path}"),
            Self::Party {
                scheme,
                host,
                port,
                path,
            } => {
                let host_text: &str = host;
                let v6 = host_text.contains(':');
                let (open, close) = if v6 { ("[", "]") } else { ("", "") };
                let usual = matches!(
                    (scheme.as_str(), port),
                    ("http" | "ws", 80) | ("https" | "wss", 443)
                );
                if usual {
                    write!(f, "{scheme}://{open}{host}{close}{path}")
                } else {
                    write!(f, "{scheme}://{open}{host}{close}:{port}{path}")
                }
            }
            Self::Tool { name } => write!(f, "tool {name}"),
        }
    }
}

/// What would leave, by digest and size; the bytes themselves stay parked at the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Payload {
    /// Digest of the parked bytes.
    pub digest: Digest,
    /// Their number.
    pub bytes: u64,
}

/// A proposed effect: an outgoing event that would become observable once released.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The channel it has to cross.
    pub channel: Channel,
    /// What it does.
    pub operation: Operation,
    /// To what.
    pub object: Object,
    /// How it can be held.
    pub class: Class,
    /// Values that steer it beyond its object (which the kernel gates by itself): a recipient
    /// in a body, a tool's destination argument, the target of a symbolic link.
    pub gated: Vec<Gated>,
    /// A tool call's arguments, leaf by leaf. Which of them steer is for the policy to say.
    pub arguments: Vec<Leaf>,
    /// Which sensitive tokens and stub marks the outgoing bytes hold, as [`crate::Scanner`] found.
    pub carries: Carried,
    /// The bytes that would leave.
    pub payload: Payload,
    /// What the effect was made over: digest of the base a file change replaces.
    pub base: Option<Digest>,
    /// Holds whose staged state or stub the effect was made from, as far as the channel knows.
    pub saw: Vec<HoldId>,
    /// Further protected fields of the manifest: `mode`, `content-type`, ... in canonical form.
    pub fields: BTreeMap<String, String>,
    /// A few words for people on what the content is: `13 bytes of text`. Untrusted text.
    pub about: String,
}

impl Effect {
    /// An effect that steers nothing beyond its object, carries nothing and has no payload.
    pub fn new(channel: Channel, operation: Operation, object: Object, class: Class) -> Self {
        Self {
            channel,
            operation,
            object,
            class,
            gated: Vec::new(),
            arguments: Vec::new(),
            carries: Carried::nothing(),
            payload: Payload::default(),
            base: None,
            saw: Vec::new(),
            fields: BTreeMap::new(),
            about: String::new(),
        }
    }
}
