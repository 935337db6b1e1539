//! Values of any text are found within it, in a form that settles, and nothing derives
//! from nothing.

use kernel::Kind;
use kernel::policy::Policy;
use kernel::provenance::Provenance;
use kernel::value::{find, normal};

/// A bit of everything that is looked for.
pub const SEEDS: &[&[u8]] = &[
    b"mail bob@a.example, see https://www.a.example:443/x/../y?q=%41#z or www.b.example/c and 10.0.0.1:80",
    b"pay GB29 NWBK 6016 1331 9268 19 or 4111-1111-1111-1111 $1,200.50 on May 26th, 2024 at 2:30 pm",
    b"run `cargo test --all` in ./src//lib.rs, 'the quoted one', serde@1 and \"another\"",
    "ｅvil。example, e\u{200b}vil.example b\u{fc}cher.example \u{201c}quoted\u{201d}".as_bytes(),
    b"26/05/2024 05.06.2024 12:15am 1.200,50 %%30a \\\\x\\y",
];

/// Finds, and looks at what was found.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let lines = text.split('\n').count();
    for found in find(text) {
        assert!(!found.normal.is_empty(), "{found:?}");
        assert!((1..=lines).contains(&(found.line as usize)), "{found:?}");
        if found.kind != Kind::Date {
            // Of a URL with two ports the first pass takes one.
            let again = normal(found.kind, &found.normal);
            assert_eq!(normal(found.kind, &again), again, "{found:?}");
        }
    }
    let (nothing, policy) = (Provenance::default(), Policy::default());
    for kind in Kind::ALL {
        assert!(!nothing.derives(&policy, kind, text, None), "{kind:?}");
    }
}
