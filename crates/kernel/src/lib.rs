//! Decides: the pure kernel of Kairos.
