//! Mediates files: copy-on-write trees over FUSE.
