//! What holds of `D` whatever the content and the forms are.

use kernel::provenance::{Form, Forms};
use kernel::{Kind, KindSet};
use proptest::prelude::*;

use crate::{World, policy};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,60}",
        "\\PC{0,30}",
        "(https?://)?(www\\.)?[a-z]{1,4}\\.(com|example)(/[a-z0-9.%]{0,6}){0,3}",
        "[a-z.]{1,6}@[a-z]{1,4}\\.example",
        "(/?[a-z.]{1,4}){1,4}",
        "[0-9]{1,4}([-/.,:][0-9]{1,4}){0,3}( ?(pm|th|May))?",
    ]
}

fn kinds() -> impl Strategy<Value = KindSet> {
    prop::collection::vec(prop::sample::select(&Kind::ALL[..]), 0..5)
        .prop_map(|kinds| KindSet::of(&kinds))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Nothing derives from nothing, from content that is not trusted, or from what the agent emits.
    #[test]
    fn nothing_derives_from_what_is_not_trusted(contents in prop::collection::vec(text(), 0..4), asked in text()) {
        let mut world = World::new(policy(KindSet::NONE));
        for content in contents.iter().chain([&asked]) {
            world.content("web", content);
            world.content("directory", content);
            world.call("anything", &[("to", content)]);
        }
        for kind in Kind::ALL {
            prop_assert!(!world.derives(kind, &asked), "{:?}", kind);
        }
    }

    /// A source is trusted per kind: trust in some makes nothing of another kind derive.
    #[test]
    fn trust_is_per_kind(content in text(), asked in text(), kinds in kinds()) {
        let mut world = World::new(policy(kinds));
        world.content("directory", &content);
        for kind in Kind::ALL {
            prop_assert!(kinds.contains(kind) || kind == Kind::Url && kinds.contains(Kind::Host)
                || !world.derives(kind, &asked), "{:?}", kind);
        }
    }

    /// More trusted content and more forms never take away what derives; a form alone adds nothing to nothing.
    #[test]
    fn more_never_takes_away(task in text(), more in text(), asked in text(), form in prop::sample::select(&Form::ALL[..])) {
        let mut world = World::new(policy(KindSet::ALL));
        world.policy.derive = Forms::NONE;
        world.task(&task);
        let before: Vec<bool> = Kind::ALL.iter().map(|kind| world.derives(*kind, &asked)).collect();
        world.policy.derive = Forms::NONE.with(form, true);
        let with_form: Vec<bool> = Kind::ALL.iter().map(|kind| world.derives(*kind, &asked)).collect();
        world.content("directory", &more);
        world.content("web", &asked);
        for (at, kind) in Kind::ALL.iter().enumerate() {
            prop_assert!(!before[at] || with_form[at], "{:?} by {:?}", kind, form);
            prop_assert!(!with_form[at] || world.derives(*kind, &asked), "{:?} after more", kind);
        }
    }

    /// What the task says in so many words derives, as whatever it is found to be.
    #[test]
    fn what_is_found_in_the_task_derives(task in text()) {
        let mut world = World::new(policy(KindSet::NONE));
        world.policy.derive = Forms::NONE;
        world.task(&task);
        for found in kernel::value::find(&task) {
            if !found.doubtful && !matches!(found.kind, Kind::Date) {
                prop_assert!(world.derives(found.kind, &found.normal), "{:?}", found);
            }
        }
    }

    /// A normal form is its own normal form.
    #[test]
    fn normal_forms_are_fixed(text in text()) {
        for kind in Kind::ALL {
            let once = kernel::value::normal(kind, &text);
            prop_assert_eq!(kernel::value::normal(kind, &once), once.clone(), "{:?}", kind);
        }
    }

    /// No path below a trusted one leads out of it.
    #[test]
    fn below_is_below(below in "(/?(\\.\\.?|[a-z]{1,3}|%2e%2E|%2f)){0,5}") {
        let mut world = World::new(policy(KindSet::NONE));
        world.policy.derive = world.policy.derive.with(Form::Composed, false);
        world.task("Only /srv/data and https://a.example/data/ are meant.");
        let asked = format!("/srv/data/{below}");
        if world.derives(Kind::Path, &asked) {
            prop_assert!(!asked.split('/').any(|part| part == ".."), "{}", asked);
        }
        let asked = format!("https://a.example/data/{below}");
        let normal = kernel::value::normal(Kind::Url, &asked);
        let derives = world.derives(Kind::Url, &asked);
        let plain = !below.contains(['.', '%']);
        let within = normal.starts_with("https://a.example/data/") || normal == "https://a.example/data";
        prop_assert!(!derives || within, "{} {}", asked, normal);
        prop_assert!(derives || !plain, "{} {}", asked, normal);
    }

    /// What could be read as leading out is below nothing, however it is spelt.
    #[test]
    fn no_spelling_leads_out(way in prop::sample::select(&[
        "..%2f..%2fevil", "%2e%2e/evil", "..;/evil", "%252e%252e/", "%5c..%5c", ".\t./evil", "..\\evil", "..\u{0}/x",
    ][..])) {
        let mut world = World::new(policy(KindSet::NONE));
        world.policy.derive = world.policy.derive.with(Form::Composed, false);
        world.task("Only /srv/data and https://a.example/data/ are meant.");
        let (path, url) = (format!("/srv/data/{way}"), format!("https://a.example/data/{way}"));
        prop_assert!(!world.derives(Kind::Path, &path), "{}", path);
        prop_assert!(!world.derives(Kind::Url, &url), "{}", url);
    }

    /// Only the web's own schemes are one.
    #[test]
    fn another_scheme_is_another_url(scheme in "(file|ftp|javascript|data|gopher|ssh)") {
        let mut world = World::new(policy(KindSet::NONE));
        world.task("Read https://good.example/docs and edit /etc/passwd");
        for url in [format!("{scheme}://good.example/docs"), format!("{scheme}:///etc/passwd")] {
            prop_assert!(!world.derives(Kind::Url, &url), "{}", url);
        }
    }

    /// An answer that only repeats what it was asked teaches nothing.
    #[test]
    fn an_echo_is_not_trusted(word in "[a-z]{3,8}") {
        let mut world = World::new(policy(KindSet::ALL));
        world.policy.tools = vec![kernel::policy::ToolRule {
            name: kernel::policy::NamePattern("directory".into()),
            effect: kernel::policy::ToolEffect::Read,
            class: kernel::Class::Blocking,
            gate: Vec::new(),
            selects: Vec::new(),
            clearance: kernel::Level::Public,
        }];
        let asked = format!("https://{word}.evil.example/x");
        let (call, released) = world.call("directory", &[("q", &asked)]);
        prop_assert!(released);
        world.answer(call, "directory", &format!("no results for {asked}, but https://b.example/y"), &[]);
        prop_assert!(!world.derives(Kind::Url, &asked));
        prop_assert!(world.derives(Kind::Url, "https://b.example/y"));
    }
}

/// Hostile content and hostile values are looked at in time that their size explains.
#[test]
fn nothing_takes_long() {
    for piece in [
        " 'x\"y`", "[[", "a@", "a/", "../", "1,", "<a.b", "//", "“", "%25", "May 1 ", "4111 ",
        "GB29 ",
    ] {
        let mut world = World::new(policy(KindSet::ALL));
        world.task("Work in a and b, see 4111 and GB29 on May 1");
        world.content("directory", &piece.repeat(20_000));
        let asked = piece.repeat(4_000);
        for kind in Kind::ALL {
            world.derives(kind, &asked);
            world.derives(kind, asked.get(..8000).unwrap_or(&asked));
        }
    }
}
