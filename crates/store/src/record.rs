//! The written form of what happened, one JSON object a line, versioned by the header record.
//! Kernel types are converted here, so that they can change without changing old logs.

use std::collections::BTreeMap;

use kernel::value::{Gated, Kind, KindSet, Origin};
use kernel::{
    Carried, Channel, Class, Digest, Effect, FileOp, HoldId, Label, Leaf, Level, Object, Operation,
    Payload, Place, Reason, Relabel, Source,
};
use serde::{Deserialize, Serialize};

/// What a channel needs to carry a held effect out later, also from another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The channel's own description, JSON text.
    pub note: String,
    /// The parked bytes, by digest (hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// Version of the log's format, written in the header.
pub const FORMAT: u32 = 2;

/// How the result of a [`Record::Done`] begins that did not go well, of which nobody knows whether it took effect.
pub const UNKNOWN: &str = "outcome not known: ";

/// One record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "a record is written or read and then folded, one at a time"
)]
pub enum Record {
    /// First record of every log.
    Header {
        /// Format version.
        format: u32,
        /// Session id.
        session: String,
        /// Identity of the workspace.
        workspace: String,
        /// Digest of the policy.
        epoch: String,
        /// The command, for people.
        command: Vec<String>,
        /// Start, RFC 3339.
        started: String,
        /// Version of the program.
        version: String,
    },
    /// Content reached the agent.
    Incoming {
        /// Event number.
        event: u64,
        /// Channel.
        channel: String,
        /// Source.
        source: WrittenSource,
        /// Digest of the content.
        digest: String,
        /// Its size in bytes.
        bytes: u64,
        /// Whether the content is kept as a blob.
        kept: bool,
        /// The blob that holds its leaves, as [`leaves_written`] writes them, when it has any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leaves: Option<String>,
        /// Event number of the call whose answer it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answers: Option<u64>,
        /// The hold whose staged state it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        layer: Option<u64>,
    },
    /// The agent proposed an effect; how it was decided.
    Proposed {
        /// Event number.
        event: u64,
        /// The effect.
        effect: WrittenEffect,
        /// Nonce, hex. Its digest is the stub's mark.
        nonce: String,
        /// What a channel parked for it.
        parked: Parked,
        /// `release`, `refuse` or `defer`.
        decision: String,
        /// Why, in words.
        why: Vec<String>,
        /// Digest of the manifest.
        manifest: String,
        /// Found undecided after a crash.
        #[serde(default)]
        in_doubt: bool,
        /// Where what was not vouched for came from.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        origins: Vec<WrittenOrigin>,
    },
    /// An oracle answered.
    Verdict {
        /// Event number.
        event: u64,
        /// Hold.
        hold: String,
        /// Digest of the manifest it saw.
        manifest: String,
        /// `release` or `refuse`.
        verdict: String,
        /// Which oracle.
        oracle: String,
        /// Why.
        reason: String,
    },
    /// The agent took back what was held.
    Withdrawn {
        /// Event number.
        event: u64,
        /// Hold.
        hold: String,
    },
    /// A blocking hold could not wait.
    Expired {
        /// Event number.
        event: u64,
        /// Hold.
        hold: String,
    },
    /// A hold was open for longer than the policy allows.
    Overdue {
        /// Event number.
        event: u64,
        /// Hold.
        hold: String,
    },
    /// What sticks to the workspace from before, as the session found it at its start.
    Labels {
        /// Tree, path, label.
        labels: Vec<WrittenLabel>,
    },
    /// What an effect does to a label; written before it happens.
    Relabelled {
        /// The effect's event number.
        event: u64,
        /// How.
        relabel: WrittenRelabel,
    },
    /// The policy was replaced; what was open was decided again.
    Policy {
        /// Event number.
        event: u64,
        /// Digest of the new one.
        epoch: String,
    },
    /// A permit was spent; written before the effect happens.
    Spent {
        /// Event number.
        event: u64,
        /// Digest of the manifest.
        manifest: String,
        /// Who vouched for it.
        why: String,
    },
    /// A hold was refused; staged state and parked bytes are discarded after this.
    Aborted {
        /// Event number of the hold.
        event: u64,
        /// Why.
        why: String,
    },
    /// What came of a spent permit.
    Done {
        /// Event number.
        event: u64,
        /// Whether the sink did it.
        ok: bool,
        /// What happened.
        what: String,
    },
    /// A notice reached the agent.
    Told {
        /// Event number the notice speaks of.
        event: u64,
        /// How: `answer`, `conversation`, `terminal`.
        how: String,
        /// Its text.
        text: String,
    },
    /// Anything worth keeping that decides nothing: the agent's exit, warnings.
    Note {
        /// What.
        what: String,
        /// Details.
        #[serde(default)]
        facts: BTreeMap<String, String>,
    },
}

/// A label that sticks to a place, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenLabel {
    /// The tree's name.
    pub tree: String,
    /// Path below its root.
    pub path: String,
    /// Kinds of value that it may still be trusted for.
    pub trusted: Vec<String>,
    /// Level of what it carries.
    pub level: String,
}

/// A change of labels, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrittenRelabel {
    /// The label is merged with what the place has.
    Stick(WrittenLabel),
    /// `[tree, path]`: the place is gone with everything below it.
    Clear(String, String),
}

impl WrittenLabel {
    fn of(place: &Place, label: Label) -> Self {
        Self {
            tree: place.tree.clone(),
            path: place.path.clone(),
            trusted: Kind::ALL
                .into_iter()
                .filter(|kind| label.trusted.contains(*kind))
                .map(|kind| kind.name().to_string())
                .collect(),
            level: label.level.name().to_string(),
        }
    }

    /// Reads it back.
    ///
    /// # Errors
    /// The word that cannot be read.
    pub fn read(&self) -> Result<(Place, Label), String> {
        let kinds: Vec<Kind> = self
            .trusted
            .iter()
            .map(|word| Kind::parse(word).ok_or_else(|| format!("kind `{word}`")))
            .collect::<Result<_, _>>()?;
        let place = Place {
            tree: self.tree.clone(),
            path: self.path.clone(),
        };
        let label = Label {
            trusted: KindSet::of(&kinds),
            level: Level::parse(&self.level).ok_or_else(|| format!("level `{}`", self.level))?,
        };
        Ok((place, label))
    }
}

impl From<&Relabel> for WrittenRelabel {
    fn from(relabel: &Relabel) -> Self {
        match relabel {
            Relabel::Stick(place, label) => Self::Stick(WrittenLabel::of(place, *label)),
            Relabel::Clear(place) => Self::Clear(place.tree.clone(), place.path.clone()),
        }
    }
}

impl WrittenRelabel {
    /// Reads it back.
    ///
    /// # Errors
    /// The word that cannot be read.
    pub fn read(&self) -> Result<Relabel, String> {
        Ok(match self {
            Self::Stick(label) => {
                let (place, label) = label.read()?;
                Relabel::Stick(place, label)
            }
            Self::Clear(tree, path) => Relabel::Clear(Place {
                tree: tree.clone(),
                path: path.clone(),
            }),
        })
    }
}

/// Labels in their written form.
pub fn written_labels<'a>(labels: impl Iterator<Item = (&'a Place, Label)>) -> Vec<WrittenLabel> {
    labels
        .map(|(place, label)| WrittenLabel::of(place, label))
        .collect()
}

/// Where a value came from, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenOrigin {
    /// What the value steers (`host`, `path`, ...), or `carries` for sensitive content.
    pub field: String,
    /// The value; empty for sensitive content, which is never written down.
    pub value: String,
    /// The source, in words.
    pub source: String,
    /// Line in it, from 1.
    pub line: u32,
}

/// Where everything that reasons speak of came from.
pub fn origins(reasons: &[Reason]) -> Vec<WrittenOrigin> {
    let written = |field: &str, value: &str, origin: &Origin| WrittenOrigin {
        field: field.to_string(),
        value: value.to_string(),
        source: origin.source.to_string(),
        line: origin.line,
    };
    let mut all = Vec::new();
    for reason in reasons {
        match reason {
            Reason::NotDerivable {
                field,
                value,
                origins,
                ..
            } => {
                all.extend(origins.iter().map(|o| written(field, value, o)));
            }
            Reason::Clearance { origins, .. } => {
                all.extend(origins.iter().map(|o| written("carries", "", o)));
            }
            _ => {}
        }
    }
    all
}

/// A source as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrittenSource {
    /// The task.
    Task,
    /// The policy.
    Policy,
    /// `[tree, path]`.
    Location(String, String),
    /// Host.
    Party(String),
    /// Tool name.
    Tool(String),
    /// Provider host.
    Model(String),
}

/// An effect as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrittenEffect {
    /// Channel.
    pub channel: String,
    /// Operation: `create`, `modify`, `delete`, `attributes`, `message`, `connect`, `call`, or a
    /// method in upper case.
    pub operation: String,
    /// Object.
    pub object: WrittenObject,
    /// Class.
    pub class: String,
    /// Further gated values: field, kind, value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gated: Vec<(String, String, String)>,
    /// A tool call's arguments: path, value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<(String, String)>,
    /// Numbers of sensitive tokens found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<usize>,
    /// Holds whose marks were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<u64>,
    /// Digest of what would leave.
    pub digest: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Digest of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Holds it saw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saw: Vec<u64>,
    /// Protected fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
    /// For people.
    #[serde(default)]
    pub about: String,
}

/// An object as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrittenObject {
    /// `[tree, path]`.
    Location(String, String),
    /// A party.
    Party {
        /// Scheme.
        scheme: String,
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// Path with query.
        path: String,
    },
    /// Tool name.
    Tool(String),
}

impl From<&Source> for WrittenSource {
    fn from(source: &Source) -> Self {
        match source {
            Source::Task => Self::Task,
            Source::Policy => Self::Policy,
            Source::Location { tree, path } => Self::Location(tree.clone(), path.clone()),
            Source::Party(host) => Self::Party(host.clone()),
            Source::Tool(name) => Self::Tool(name.clone()),
            Source::Model(name) => Self::Model(name.clone()),
        }
    }
}

impl From<&WrittenSource> for Source {
    fn from(source: &WrittenSource) -> Self {
        match source {
            WrittenSource::Task => Self::Task,
            WrittenSource::Policy => Self::Policy,
            WrittenSource::Location(tree, path) => Self::Location {
                tree: tree.clone(),
                path: path.clone(),
            },
            WrittenSource::Party(host) => Self::Party(host.clone()),
            WrittenSource::Tool(name) => Self::Tool(name.clone()),
            WrittenSource::Model(name) => Self::Model(name.clone()),
        }
    }
}

impl From<&Effect> for WrittenEffect {
    fn from(effect: &Effect) -> Self {
        Self {
            channel: effect.channel.name().to_string(),
            operation: effect.operation.name().to_string(),
            object: match &effect.object {
                Object::Location { tree, path } => {
                    WrittenObject::Location(tree.clone(), path.clone())
                }
                Object::Party {
                    scheme,
                    host,
                    port,
                    path,
                } => WrittenObject::Party {
                    scheme: scheme.clone(),
                    host: host.clone(),
                    port: *port,
                    path: path.clone(),
                },
                Object::Tool { name } => WrittenObject::Tool(name.clone()),
            },
            class: effect.class.name().to_string(),
            gated: effect
                .gated
                .iter()
                .map(|g| (g.field.clone(), g.kind.name().to_string(), g.value.clone()))
                .collect(),
            arguments: effect
                .arguments
                .iter()
                .map(|leaf| (leaf.path.clone(), leaf.value.clone()))
                .collect(),
            tokens: effect.carries.tokens().collect(),
            marks: effect.carries.marks().map(|h| h.0).collect(),
            digest: effect.payload.digest.hex(),
            bytes: effect.payload.bytes,
            base: effect.base.map(|d| d.hex()),
            saw: effect.saw.iter().map(|h| h.0).collect(),
            fields: effect.fields.clone(),
            about: effect.about.clone(),
        }
    }
}

impl WrittenEffect {
    /// Reads it back.
    ///
    /// # Errors
    /// The name of the field that cannot be read.
    pub fn read(&self) -> Result<Effect, String> {
        let digest = |text: &str| Digest::from_hex(text).ok_or_else(|| format!("digest `{text}`"));
        Ok(Effect {
            channel: read_channel(&self.channel)?,
            operation: match self.operation.as_str() {
                "create" => Operation::File(FileOp::Create),
                "modify" => Operation::File(FileOp::Modify),
                "delete" => Operation::File(FileOp::Delete),
                "attributes" => Operation::File(FileOp::Attributes),
                "message" => Operation::Message,
                "connect" => Operation::Connect,
                "call" => Operation::Call,
                method => Operation::Request(method.to_string()),
            },
            object: match &self.object {
                WrittenObject::Location(tree, path) => Object::Location {
                    tree: tree.clone(),
                    path: path.clone(),
                },
                WrittenObject::Party {
                    scheme,
                    host,
                    port,
                    path,
                } => Object::Party {
                    scheme: scheme.clone(),
                    host: host.clone(),
                    port: *port,
                    path: path.clone(),
                },
                WrittenObject::Tool(name) => Object::Tool { name: name.clone() },
            },
            class: match self.class.as_str() {
                "stageable" => Class::Stageable,
                "stallable" => Class::Stallable,
                "blocking" => Class::Blocking,
                other => return Err(format!("class `{other}`")),
            },
            gated: self
                .gated
                .iter()
                .map(|(field, kind, value)| {
                    let kind = Kind::parse(kind).ok_or_else(|| format!("kind `{kind}`"))?;
                    Ok(Gated::new(field, kind, value.clone()))
                })
                .collect::<Result<_, String>>()?,
            arguments: self
                .arguments
                .iter()
                .map(|(path, value)| Leaf::new(path.clone(), value.clone()))
                .collect(),
            carries: Carried::recorded(
                self.tokens.iter().copied(),
                self.marks.iter().map(|n| HoldId(*n)),
            ),
            payload: Payload {
                digest: digest(&self.digest)?,
                bytes: self.bytes,
            },
            base: self.base.as_deref().map(digest).transpose()?,
            saw: self.saw.iter().map(|n| HoldId(*n)).collect(),
            fields: self.fields.clone(),
            about: self.about.clone(),
        })
    }
}

/// Leaves of structured content, as a blob keeps them: a JSON list of `[path, value]`.
pub fn leaves_written(leaves: &[Leaf]) -> Vec<u8> {
    let pairs: Vec<(&str, &str)> = leaves
        .iter()
        .map(|leaf| (leaf.path.as_str(), leaf.value.as_str()))
        .collect();
    // Texts alone cannot fail to be written.
    serde_json::to_vec(&pairs).unwrap_or_default()
}

/// Reads what [`leaves_written`] wrote; nothing when it was not that.
pub fn leaves_read(bytes: &[u8]) -> Vec<Leaf> {
    serde_json::from_slice::<Vec<(String, String)>>(bytes)
        .unwrap_or_default()
        .into_iter()
        .map(|(path, value)| Leaf::new(path, value))
        .collect()
}

/// Reads a channel's name.
///
/// # Errors
/// The name, when there is no such channel.
pub fn read_channel(name: &str) -> Result<Channel, String> {
    [Channel::File, Channel::Net, Channel::Term, Channel::Tool]
        .into_iter()
        .find(|channel| channel.name() == name)
        .ok_or_else(|| format!("channel `{name}`"))
}

/// Reasons in words, for the log and for `--json`.
pub fn words(reasons: &[Reason]) -> Vec<String> {
    reasons.iter().map(ToString::to_string).collect()
}
