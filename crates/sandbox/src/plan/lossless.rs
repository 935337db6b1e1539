//! How a plan is written: paths, arguments and contents are bytes, not text; JSON carries them as
//! text where they are and as base64 where they are not.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes { base64: String },
}

fn write(text: &OsStr) -> Written {
    match text.to_str() {
        Some(text) => Written::Text(text.to_owned()),
        None => Written::Bytes {
            base64: STANDARD.encode(text.as_bytes()),
        },
    }
}

fn read<E: serde::de::Error>(written: Written) -> Result<OsString, E> {
    match written {
        Written::Text(text) => Ok(text.into()),
        Written::Bytes { base64 } => STANDARD
            .decode(base64)
            .map(OsString::from_vec)
            .map_err(E::custom),
    }
}

pub(super) mod path {
    use super::*;
    pub(in super::super) fn serialize<S: Serializer>(
        path: &std::path::Path,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        write(path.as_os_str()).serialize(to)
    }
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<PathBuf, D::Error> {
        read(Written::deserialize(from)?).map(PathBuf::from)
    }
}

pub(super) mod paths {
    use super::*;
    pub(in super::super) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| write(path.as_os_str())))
    }
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let written = Vec::<Written>::deserialize(from)?;
        written
            .into_iter()
            .map(|path| read(path).map(PathBuf::from))
            .collect()
    }
}

pub(super) mod os_strings {
    use super::*;
    pub(in super::super) fn serialize<S: Serializer>(
        words: &[OsString],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(words.iter().map(|word| write(word)))
    }
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<OsString>, D::Error> {
        Vec::<Written>::deserialize(from)?
            .into_iter()
            .map(read)
            .collect()
    }
}

pub(super) mod environment {
    use super::*;
    pub(in super::super) fn serialize<S: Serializer>(
        env: &BTreeMap<OsString, OsString>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(env.iter().map(|(name, value)| (write(name), write(value))))
    }
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<OsString, OsString>, D::Error> {
        let written = Vec::<(Written, Written)>::deserialize(from)?;
        written
            .into_iter()
            .map(|(name, value)| Ok((read(name)?, read(value)?)))
            .collect()
    }
}

pub(super) mod bytes {
    use super::*;
    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        STANDARD.encode(bytes).serialize(to)
    }
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        STANDARD
            .decode(String::deserialize(from)?)
            .map_err(D::Error::custom)
    }
}
