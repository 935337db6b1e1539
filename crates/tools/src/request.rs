//! What a harness writes: one JSON object a line. A line is read twice: for what it asks and its
//! `id`, then in full, so that a mistake in it is answered under the right `id`.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// What every line has.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub struct Head<'a> {
    /// Comes back with the reply; anything.
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    /// What is asked.
    #[serde(rename = "do", default)]
    pub verb: Option<std::borrow::Cow<'a, str>>,
}

/// Any JSON, in which no object has a key twice: of two values a decision would be about one, and
/// the harness might act on the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Data(pub Value);

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyData).map(Self)
    }
}

struct AnyData;

impl<'de> Visitor<'de> for AnyData {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut found = Vec::new();
        while let Some(Data(item)) = items.next_element()? {
            found.push(item);
        }
        Ok(Value::Array(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut found = serde_json::Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if found.contains_key(&key) {
                return Err(serde::de::Error::custom(format!(
                    "the key `{key}` stands twice"
                )));
            }
            let Data(value) = entries.next_value()?;
            found.insert(key, value);
        }
        Ok(Value::Object(found))
    }
}

/// The words that `do` may be.
pub const VERBS: [&str; 11] = [
    "policy", "open", "incoming", "propose", "done", "verdict", "expire", "withdraw", "held",
    "view", "close",
];

/// Where content came from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// The principal.
    Task,
    /// A tool, by name.
    Tool(String),
    /// Somebody beyond the boundary, by host.
    Party(String),
    /// A place in the workspace.
    Location(String),
}

/// An HTTP request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Request {
    /// Method.
    pub method: String,
    /// Absolute URL.
    pub url: String,
    /// Header lines, value by name; several of one name are joined with commas.
    #[serde(default)]
    pub headers: Option<Data>,
    /// Body.
    #[serde(default)]
    pub body: String,
    /// Body that is no text, in base64.
    #[serde(default)]
    pub body_base64: Option<String>,
}

/// A change of a file in the workspace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Change {
    /// What is done to it.
    pub operation: ChangeKind,
    /// Path below the workspace.
    pub path: String,
    /// What will be in it.
    #[serde(default)]
    pub content: String,
}

/// What is done to a file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It was not there before.
    Create,
    /// Other content.
    Modify,
    /// It goes away.
    Delete,
}

/// Release or refuse.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Let it happen.
    Release,
    /// It must not happen.
    Refuse,
}

/// Every line has an `id` and a `do` besides its own fields, which were read before, and nothing
/// else: a misspelt field is a mistake, not a wish that is silently dropped.
macro_rules! lines {
    ($($(#[$of:meta])* pub struct $name:ident { $($(#[$field_of:meta])* pub $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$of])*
            #[derive(Debug, Deserialize)]
            #[serde(deny_unknown_fields, expecting = "an object")]
            pub struct $name {
                #[serde(default, rename = "id")]
                _id: IgnoredAny,
                #[serde(default, rename = "do")]
                _verb: IgnoredAny,
                $($(#[$field_of])* pub $field: $kind,)*
            }
        )*
    };
}

lines! {
    /// Loads a policy under a name.
    pub struct LoadPolicy {
        /// The name that sessions use.
        pub name: String,
        /// Its file.
        #[serde(default)]
        pub path: Option<String>,
        /// Its text.
        #[serde(default)]
        pub toml: Option<String>,
    }

    /// Begins a session.
    pub struct Open {
        /// A name that no open session has.
        pub session: String,
        /// Name of a policy that was loaded.
        pub policy: String,
        /// The principal's words.
        #[serde(default)]
        pub task: Option<String>,
        /// Identity of the workspace: labels stick to it from session to session.
        #[serde(default)]
        pub workspace: Option<String>,
    }

    /// Content reached the agent.
    pub struct Incoming {
        /// The session.
        pub session: String,
        /// Where it came from.
        pub source: Source,
        /// What the agent sees.
        pub text: String,
        /// The same content as data, when the tool gave data.
        #[serde(default)]
        pub json: Option<Data>,
        /// Event of the call whose answer it is.
        #[serde(default)]
        pub answers: Option<u64>,
    }

    /// The agent is about to do something: exactly one of `tool`, `request` and `change`.
    pub struct Propose {
        /// The session.
        pub session: String,
        /// Name of the tool that is called.
        #[serde(default)]
        pub tool: Option<String>,
        /// Its arguments.
        #[serde(default)]
        pub arguments: Option<Data>,
        /// An HTTP request.
        #[serde(default)]
        pub request: Option<Request>,
        /// A change of a file.
        #[serde(default)]
        pub change: Option<Change>,
        /// Holds whose staged state or stub it was made from, as far as the harness knows.
        #[serde(default)]
        pub saw: Vec<String>,
    }

    /// A released call was carried out.
    pub struct Done {
        /// The session.
        pub session: String,
        /// The call's event.
        pub event: u64,
        /// Whether it worked.
        pub ok: bool,
        /// What came of it, in a few words.
        #[serde(default)]
        pub what: String,
    }

    /// An oracle's answer for a hold.
    pub struct Verdict {
        /// The session.
        pub session: String,
        /// The hold: `h12`.
        pub hold: String,
        /// Digest of the manifest that the oracle saw, 64 hexadecimal digits.
        pub manifest: String,
        /// The answer.
        pub verdict: Word,
        /// Which oracle.
        pub oracle: String,
        /// Why.
        #[serde(default)]
        pub reason: String,
    }

    /// Something about a hold.
    pub struct OfHold {
        /// The session.
        pub session: String,
        /// The hold: `h12`.
        pub hold: String,
    }

    /// Something about a session.
    pub struct OfSession {
        /// The session.
        pub session: String,
    }
}
