//! Reads model-provider protocols.
