//! Remembers: one append-only, hash-chained log per session.
