//! Undoes the codes that text is written in: escapes, digits of several bases, characters of two bytes. Pure, like
//! the kernel, which searches what comes out; knows nothing of what it is searched for.
//!
//! Modules in reading order:
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Escapes: percent-encoding, backslashes, entities, quoted-printable, numbers.
pub mod escapes;
/// Where escapes may begin.
pub mod leads;
/// Stretches of base64, base32 and hexadecimal.
pub mod runs;
/// Characters of two bytes.
pub mod wide;

/// Sixteen bytes at once.
mod lanes;
