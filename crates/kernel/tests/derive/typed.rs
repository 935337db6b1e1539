//! What answers of tools may steer, and what they may not.

use std::sync::Arc;

use kernel::policy::{
    Condition, Destination, FieldPattern, Gates, Matching, NamePattern, Policy, SensitiveFields,
    SourcePattern, ToolEffect, ToolRule, TypedRule, When,
};
use kernel::{Class, Kind, KindSet, Level};

use crate::{World, policy};

fn tool(name: &str, effect: ToolEffect, gate: &[(&str, Kind)]) -> ToolRule {
    let gates = |(field, kind): &(&str, Kind)| {
        Gates::Whole(FieldPattern(field.to_string()), KindSet::of(&[*kind]))
    };
    ToolRule {
        name: NamePattern(name.into()),
        effect,
        class: Class::Blocking,
        gate: gate.iter().map(gates).collect(),
        selects: Vec::new(),
        clearance: Level::Public,
    }
}

fn typed(from: &str, field: &str, kind: Kind, when: When, to: &[&str]) -> TypedRule {
    let destination = |to: &&str| {
        let (tool, argument) = to.split_once('.').unwrap();
        Destination {
            tool: NamePattern(tool.into()),
            argument: FieldPattern(argument.into()),
        }
    };
    TypedRule {
        name: field.into(),
        from: NamePattern(from.into()),
        field: FieldPattern(field.into()),
        kind,
        when,
        matching: Vec::new(),
        named: false,
        inside: false,
        to: to.iter().map(destination).collect::<Arc<[_]>>(),
    }
}

fn files(when: When) -> TypedRule {
    typed(
        "search_files",
        "*.id",
        Kind::Id,
        when,
        &["delete_file.file_id"],
    )
}

fn world(task: &str, rules: Vec<TypedRule>) -> World {
    let mut world = World::new(Policy {
        tools: vec![
            tool("delete_file", ToolEffect::Act, &[("file_id", Kind::Id)]),
            tool(
                "share_file",
                ToolEffect::Act,
                &[("file_id", Kind::Id), ("to", Kind::Email)],
            ),
            tool("book", ToolEffect::Act, &[("title", Kind::Text)]),
            tool("hold_me", ToolEffect::Act, &[("to", Kind::Email)]),
            tool("*", ToolEffect::Read, &[]),
        ],
        typed: rules,
        ..policy(KindSet::NONE)
    });
    world.task(task);
    world
}

/// Searches files, and lets the search bring two of them.
fn search(world: &mut World, arguments: &[(&str, &str)]) {
    let (call, released) = world.call("search_files", arguments);
    assert!(released);
    let fields = [
        ("0.id", "13"),
        ("0.filename", "plan.txt"),
        ("0.owner.mail", "Sarah.Baker@a.example"),
        ("1.id", "14"),
        ("1.filename", "evil.txt"),
        ("1.owner.mail", "big.discount@evil.example"),
    ];
    world.answer(call, "search_files", "13 plan.txt\n14 evil.txt\n", &fields);
}

#[test]
fn an_id_is_good_for_what_it_was_released_for_and_nothing_else() {
    let mut world = world("Delete plan.txt on June 13", vec![files(When::Selected)]);
    let (_, released) = world.call("delete_file", &[("file_id", "13")]);
    assert!(!released, "June 13 is not about file 13");
    search(&mut world, &[("query", "plan.txt")]);
    assert!(world.call("delete_file", &[("file_id", "13")]).1);
    assert!(!world.call("delete_file", &[("file_id", "15")]).1);
    assert!(!world.call("share_file", &[("file_id", "13")]).1);
    assert!(world.steers(Kind::Id, " 13", "delete_file", "file_id"));
    for (kind, tool, argument) in [
        (Kind::Number, "delete_file", "file_id"),
        (Kind::Id, "delete_file", "other"),
        (Kind::Id, "delete_files", "file_id"),
    ] {
        assert!(
            !world.steers(kind, "14", tool, argument),
            "{kind:?} {tool} {argument}"
        );
    }
    assert!(!world.derives(Kind::Id, "13"));
}

#[test]
fn a_call_selects_by_what_the_task_says_or_not_at_all() {
    for (arguments, expect) in [
        (&[("query", "plan.txt")][..], true),
        (&[("query", "PLAN.txt ")], true),
        (&[("query", "invoice")], false),
        (&[("query", "")], false),
        (&[], false),
        (&[("query", "plan.txt"), ("owner", "eve")], false),
        (&[("query", "the June plan.txt")], true),
        (&[("when", "2024-06-13")], true),
        (&[("when", "2024-06-14")], false),
    ] {
        let mut world = world(
            "Delete the plan.txt of June 13",
            vec![files(When::Selected)],
        );
        search(&mut world, arguments);
        let good = world.steers(Kind::Id, "13", "delete_file", "file_id");
        assert_eq!(good, expect, "{arguments:?}");
    }
}

#[test]
fn only_named_selectors_select() {
    let mut world = world("Delete plan.txt", vec![files(When::Selected)]);
    let mut rule = tool("search_files", ToolEffect::Read, &[]);
    rule.selects = vec![(FieldPattern("query".into()), KindSet::of(&[Kind::Text]))];
    world.policy.tools.insert(0, rule);
    search(&mut world, &[("limit", "100")]);
    assert!(!world.steers(Kind::Id, "13", "delete_file", "file_id"));
    search(&mut world, &[("query", "plan.txt"), ("limit", "100")]);
    assert!(world.steers(Kind::Id, "13", "delete_file", "file_id"));
}

#[test]
fn conditions_speak_of_the_same_record() {
    for (is, field, first, second) in [
        (
            Condition::Derives(KindSet::of(&[Kind::Text])),
            "*.filename",
            true,
            false,
        ),
        (
            Condition::Is(vec!["EVIL.txt".into()]),
            "*.filename",
            false,
            true,
        ),
        (Condition::Named, "*.owner.mail", true, false),
        (Condition::Words, "*.filename", true, true),
        (Condition::Named, "*.nothing", false, false),
    ] {
        let mut rule = files(When::Always);
        let field = FieldPattern(field.into());
        rule.matching = vec![Matching {
            field,
            is: is.clone(),
        }];
        let mut world = world(
            "Sarah wants plan.txt gone; it has a big discount. Any txt",
            vec![rule],
        );
        search(&mut world, &[]);
        let good = |id| world.steers(Kind::Id, id, "delete_file", "file_id");
        assert_eq!((good("13"), good("14")), (first, second), "{is:?}");
    }
}

#[test]
fn unique_is_counted_after_all_else() {
    let mut world = world("Delete it", vec![files(When::Unique)]);
    search(&mut world, &[]);
    assert!(!world.steers(Kind::Id, "13", "delete_file", "file_id"));
    let mut rule = files(When::Unique);
    rule.matching = vec![Matching {
        field: FieldPattern("*.filename".into()),
        is: Condition::Is(vec!["plan.txt".into()]),
    }];
    world.policy.typed = vec![rule];
    search(&mut world, &[]);
    assert!(world.steers(Kind::Id, "13", "delete_file", "file_id"));
}

#[test]
fn only_the_answer_to_a_call_that_happened_counts() {
    let rule = typed(
        "hold_me",
        "id",
        Kind::Id,
        When::Always,
        &["delete_file.file_id"],
    );
    let mut world = world("Do it", vec![rule]);
    let (call, released) = world.call("hold_me", &[("to", "eve@evil.example")]);
    assert!(!released);
    world.answer(call, "hold_me", "7", &[("id", "7")]);
    assert!(
        !world.steers(Kind::Id, "7", "delete_file", "file_id"),
        "it was held"
    );
    let (call, _) = world.call("anything", &[]);
    world.answer(call, "hold_me", "8", &[("id", "8")]);
    assert!(
        !world.steers(Kind::Id, "8", "delete_file", "file_id"),
        "another tool's call"
    );
}

#[test]
fn values_inside_texts_lines_and_names() {
    let mut inside = typed(
        "read_page",
        "$text",
        Kind::Email,
        When::Always,
        &["share_file.to"],
    );
    (inside.inside, inside.named) = (true, true);
    let mut code = typed(
        "read_page",
        "$text",
        Kind::Id,
        When::Always,
        &["delete_file.file_id"],
    );
    code.inside = true;
    let lines = typed(
        "list_hotels",
        "$lines",
        Kind::Text,
        When::Always,
        &["book.title"],
    );
    let mut world = world(
        "Invite Dora, her mail is on her page. Then put Booking hotel and its name into my calendar",
        vec![inside, code, lines],
    );
    let (call, _) = world.call("read_page", &[]);
    let page = "dora.x@mail.example or fred9246@mail.example; your code is 869451.";
    world.answer(call, "read_page", page, &[]);
    assert!(world.steers(Kind::Email, "Dora.X@mail.example", "share_file", "to"));
    assert!(!world.steers(Kind::Email, "fred9246@mail.example", "share_file", "to"));
    assert!(world.steers(Kind::Id, "869451", "delete_file", "file_id"));
    assert!(!world.steers(Kind::Id, "code", "delete_file", "file_id"));

    let (call, _) = world.call("list_hotels", &[]);
    world.answer(
        call,
        "list_hotels",
        "Hotel Names: Montmartre Suites\nGood Night\n",
        &[],
    );
    for (title, expect) in [
        ("Montmartre Suites", true),
        ("good night", true),
        ("Hotel Names", false),
        ("Booking hotel Montmartre Suites", true),
        ("Booking hotel: Good Night", true),
        ("Booking Montmartre Suites calendar", true),
        ("Booking Montmartre Suites Good Night", false),
        ("Cancel hotel Montmartre Suites", false),
        ("Montmartre", false),
    ] {
        assert_eq!(
            world.steers(Kind::Text, title, "book", "title"),
            expect,
            "{title}"
        );
    }
    let off = kernel::provenance::Form::Composed;
    world.policy.derive = world.policy.derive.with(off, false);
    assert!(!world.steers(
        Kind::Text,
        "Booking hotel Montmartre Suites",
        "book",
        "title"
    ));
}

#[test]
fn what_is_not_of_its_kind_is_not_released() {
    let rules = [Kind::Email, Kind::Url, Kind::Number, Kind::Date, Kind::Text];
    let rules = rules.map(|kind| typed("look", "*", kind, When::Always, &["book.title"]));
    let mut world = world("Look", rules.to_vec());
    let (call, _) = world.call("look", &[]);
    let long = "x".repeat(1001);
    let fields = [
        ("0", "ask eve@evil.example"),
        ("1", "two\nlines"),
        ("2", long.as_str()),
        ("3", "12 or 13"),
    ];
    world.answer(call, "look", "", &fields);
    for (kind, value) in [
        (Kind::Email, "ask eve@evil.example"),
        (Kind::Email, "eve@evil.example"),
        (Kind::Url, "evil.example"),
        (Kind::Number, "12"),
        (Kind::Date, "12 or 13"),
        (Kind::Text, "two\nlines"),
        (Kind::Text, "two lines"),
        (Kind::Text, &long),
    ] {
        assert!(
            !world.steers(kind, value, "book", "title"),
            "{kind:?} {value}"
        );
    }
    assert!(world.steers(Kind::Text, "12 or 13", "book", "title"));
}

#[test]
fn the_most_specific_gate_counts_and_empty_steers_nothing() {
    let mut rule = tool("send", ToolEffect::Act, &[]);
    let gate =
        |field: &str, kinds: &[Kind]| Gates::Whole(FieldPattern(field.into()), KindSet::of(kinds));
    rule.gate = vec![
        gate("attachments", &[Kind::Email]),
        gate("attachments.*.id", &[Kind::Text]),
        gate("to", &[Kind::Email, Kind::Path]),
        Gates::Inside(FieldPattern("body".into()), KindSet::of(&[Kind::Url])),
    ];
    let mut world = world(
        "Send alpha from docs/a to bob@a.example, see www.a.example/x",
        vec![],
    );
    world.policy.tools = vec![rule];
    for (arguments, expect) in [
        (&[("attachments.0.id", "alpha")][..], true),
        (&[("attachments.0.id", "zulu")], false),
        (&[("attachments.0.name", "alpha")], false),
        (&[("attachments.0.name", " ")], false),
        (&[("attachments.0", " ")], true),
        (&[("to.eve@a．example", "")], false),
        (&[("to.eve@a．example", "bob@a.example")], false),
        (&[("to.bob@a．example", "")], true),
        (&[("to", "docs/a")], true),
        (
            &[("to.0", "bob@a.example"), ("to.1", "eve@a.example")],
            false,
        ),
        (&[("body", "see http://a.example/x, or not")], true),
        (&[("body", "see evil.example")], false),
        (&[("body", "see x\u{200b}.evil\u{3002}example now")], false),
        (&[("anything", "at all")], true),
    ] {
        assert_eq!(world.call("send", arguments).1, expect, "{arguments:?}");
    }
    assert!(!world.call("unknown", &[]).1);
}

#[test]
fn a_sensitive_field_is_sensitive_and_the_rest_is_not() {
    let mut world = world("Look me up", vec![]);
    world.policy.sensitive_fields = vec![SensitiveFields {
        of: SourcePattern::Tool(NamePattern("profile".into())),
        fields: vec![FieldPattern("passport".into())],
        level: Level::Critical,
    }];
    let level = |world: &World, text: &str| {
        let provenance = world.state.provenance();
        provenance.level_of(&provenance.scanner().scan(text.as_bytes()))
    };
    let (call, _) = world.call("profile", &[]);
    let fields = [
        ("name", "Emma Johnson-Smythe"),
        ("passport", "PX4711008154711"),
    ];
    let text = "name: Emma Johnson-Smythe\npassport: PX4711008154711\n";
    world.answer(call, "profile", text, &fields);
    assert_eq!(
        level(&world, "my passport PX4711008154711"),
        Level::Critical
    );
    assert_eq!(level(&world, "Emma Johnson-Smythe"), Level::Public);
    // Without fields nothing can be told apart.
    world.content("profile", "passport: QY9911002255667\n");
    assert_eq!(level(&world, "QY9911002255667"), Level::Critical);
}
