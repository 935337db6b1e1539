//! Advises: the oracles.
