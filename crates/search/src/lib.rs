//! Finds any of millions of tokens in a text, while more of them come. Pure, like the kernel, which decides what a
//! token is and what follows from finding one; knows nothing of secrets.
//!
//! - [`Set`] holds tokens and numbers them in order. Adding one costs what its size costs, however many there are.
//! - [`Finder`] is a search for what was known when it was made; it shares everything with the set and is not
//!   disturbed by what comes later.
//!
//! A token is found as it is and, from eight bytes on, in any case. Of a token in which letters and digits alternate
//! (a key, a number of an account) any [`PART_BYTES`] bytes are found without the rest.
//!
//! Modules in reading order:
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Tokens with their numbers.
mod set;
/// The search itself.
mod find;
/// Which filters and tables there are, and how they grow.
mod index;
/// One filter with its table.
mod table;
/// The bytes by which a token is known.
mod anchor;
/// Kinds of anchors, and the places of a text where each may be.
mod kind;
/// Parts of a token that are found without the rest.
mod part;
/// Memory that is asked for before it is needed.
mod near;
/// Sixteen bytes that are looked at together.
mod lanes;
/// Tokens as bytes.
mod tokens;
/// Sets of hashes.
mod hashes;

pub use find::{Finder, Found};
pub use hashes::{Hashes, hash_of};
pub use lanes::{LANES, Lanes, Which};
pub use part::PART_BYTES;
pub use set::{Added, Set};

/// The shortest token.
pub const TOKEN_BYTES_MIN: usize = 6;
