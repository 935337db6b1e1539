//! Finds the read-only binds that a command needs to run: tools live in homes and odd places.
