//! Nothing to link: the rules of the house are in `tests/`.
