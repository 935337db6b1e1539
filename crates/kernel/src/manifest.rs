//! The canonical description of one action, and its digest.
//!
//! Encoded as deterministic CBOR (RFC 8949, section 4.2): definite lengths, shortest integers,
//! map keys in bytewise order of their encoding. CBOR rather than JCS because paths and field
//! values are bytes to us, and JCS would need every one of them to be valid Unicode text first.
//! Incidental fields ([`INCIDENTAL`]: `Date`, trace ids, ...) are not part of it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use minicbor::Encoder;

use crate::event::{Digest, Effect, Object, written};
use crate::planted::{self, Bug};

/// Header and field names, lower case, that may differ between the action that was approved and
/// the one that is carried out: they say when and by what means, not what.
pub const INCIDENTAL: [&str; 12] = [
    "accept-encoding",
    "baggage",
    "content-length",
    "date",
    "host",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-amzn-trace-id",
    "x-b3-traceid",
    "x-request-id",
    "x-stainless-retry-count",
];

/// Sixteen bytes that the agent cannot guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// Lower-case hexadecimal, 32 characters.
    pub fn hex(&self) -> String {
        written(&self.0)
    }

    /// The mark that a stub carries for it: `kairos-` and 32 hexadecimal digits of a digest, so
    /// that the nonce itself stays unknown.
    pub fn mark(&self) -> String {
        let mut mark = String::from("kairos-");
        mark.push_str(Digest::of(&self.0).hex().get(..32).unwrap_or_default());
        mark
    }
}

/// One action, with everything that must not change after it was approved.
#[derive(Clone, Copy, Debug)]
pub struct Manifest<'a> {
    /// The effect.
    pub effect: &'a Effect,
    /// Digest of the policy in force.
    pub epoch: Digest,
    /// Which workspace: an identity that another one does not share.
    pub workspace: &'a str,
    /// Digest of the principal's words when it was proposed.
    pub task: Digest,
    /// Makes two equal actions two manifests.
    pub nonce: Nonce,
}

impl Manifest<'_> {
    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        let mut e = Encoder::new(&mut bytes);
        // Writing to a `Vec` cannot fail; the result is dropped for that reason alone.
        let _ = self.write(&mut e);
        bytes
    }

    /// Their digest: what a permit names.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.encode())
    }

    fn write(
        &self,
        e: &mut Encoder<&mut Vec<u8>>,
    ) -> Result<(), minicbor::encode::Error<core::convert::Infallible>> {
        let effect = self.effect;
        // Keys 0..=10: shortest form, ascending, which is their bytewise order.
        e.map(11)?;
        e.u8(0)?.str("kairos/manifest/2")?;
        e.u8(1)?.str(effect.channel.name())?;
        e.u8(2)?.str(effect.operation.name())?;
        e.u8(3)?;
        match &effect.object {
            Object::Location { tree, path } => {
                e.array(3)?.str("location")?.str(tree)?.str(path)?;
            }
            Object::Party {
                scheme,
                host,
                port,
                path,
            } => {
                e.array(5)?
                    .str("party")?
                    .str(scheme)?
                    .str(host)?
                    .u16(*port)?
                    .str(path)?;
            }
            Object::Tool { name } => {
                e.array(2)?.str("tool")?.str(name)?;
            }
        }
        let content = if planted::is(Bug::ContentForgotten) {
            Digest::default()
        } else {
            effect.payload.digest
        };
        e.u8(4)?.bytes(&content.0)?;
        e.u8(5)?.u64(effect.payload.bytes)?;
        e.u8(6)?;
        match effect
            .base
            .as_ref()
            .filter(|_| !planted::is(Bug::BaseForgotten))
        {
            Some(base) => e.bytes(&base.0)?,
            None => e.null()?,
        };
        e.u8(7)?;
        // Map keys of text sort by length first in their encoded form.
        let mut fields: Vec<(&String, &String)> = effect
            .fields
            .iter()
            .filter(|(name, _)| !INCIDENTAL.contains(&name.as_str()))
            .collect();
        fields.sort_by(|a, b| (a.0.len(), a.0).cmp(&(b.0.len(), b.0)));
        e.map(fields.len() as u64)?;
        for (name, value) in fields {
            e.str(name)?.str(value)?;
        }
        e.u8(8)?
            .array(2)?
            .bytes(&self.epoch.0)?
            .str(self.workspace)?;
        e.u8(9)?.bytes(&self.nonce.0)?;
        e.u8(10)?.bytes(&self.task.0)?;
        Ok(())
    }
}

/// The manifest in words, for `--json` and reviews.
pub fn describe(effect: &Effect) -> String {
    let mut text = effect.operation.name().to_string();
    text.push(' ');
    text.push_str(&effect.object.to_string());
    text
}
