//! GraphQL: with a mutation behind it, no document that can be read only asks.

use net::graphql::{Kind, of};

/// Each kind, in each form.
pub const SEEDS: &[&[u8]] = &[
    b"query Q($a: In = {b: [1]}) @d(x: \"}\") { a(b: {c: \"\"\"x\"\"\"}) } # end",
    b"fragment F on T { a } mutation M { ...F }",
    b"{ a }, subscription S { b }",
];

/// As it is, and with a mutation behind it.
pub fn run(bytes: &[u8]) {
    let before = of("application/graphql", bytes);
    let json = of("application/json", bytes);
    let after = of(
        "application/graphql",
        &[bytes, b"\nmutation Last { a }"].concat(),
    );
    if let Some((kind, names)) = after
        && before.is_some()
    {
        assert!(kind == Kind::Mutation, "{names:?}");
    }
    if let Some((kind, _)) = json {
        assert!(!kind.word().is_empty());
    }
}
