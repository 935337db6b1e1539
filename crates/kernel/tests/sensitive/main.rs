//! The sensitive search: what it finds, under which codes, however the bytes are cut; beside a slow model
//! that decodes everything and looks with `contains`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod codes;
mod model;
mod properties;
mod structure;
mod tokens;
