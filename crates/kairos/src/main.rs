//! Kairos, the binary.
fn main() {}
