//! The structure behind the search: it grows, it is shared, and numbers stay.

use kernel::sensitive::Sensitive;
use kernel::{EventId, HoldId, Level, Source};

fn add(sensitive: &mut Sensitive, text: &str, event: u64) {
    sensitive.add_text(text, Level::Critical, &Source::Task, EventId(event));
}

fn token(number: usize) -> String {
    // Many share long parts.
    format!("prefix-{}-{:06x}-suffix", number % 7, number * 7919)
}

#[test]
fn every_token_is_found_while_it_grows() {
    let mut sensitive = Sensitive::default();
    let mut made = Vec::new();
    for number in 0..3000 {
        add(&mut sensitive, &token(number), number as u64);
        if number % 97 == 0 {
            made.push((number, sensitive.scanner()));
        }
    }
    assert_eq!(sensitive.len(), 3000);
    let scanner = sensitive.scanner();
    for number in 0..3000 {
        let text = format!("x{}y", token(number));
        let found: Vec<_> = scanner.scan(text.as_bytes()).tokens().collect();
        assert_eq!(found, [number], "{text}");
        assert_eq!(sensitive.number_of(token(number).as_bytes()), Some(number));
    }
    // A search knows what was known when it was made.
    for (known, scanner) in made {
        for number in [0, known / 2, known, known + 1, 2999] {
            let found = scanner.scan(token(number).as_bytes()).tokens().count();
            assert_eq!(found, usize::from(number <= known), "{number} of {known}");
        }
    }
}

#[test]
fn what_looks_alike_is_told_apart() {
    let mut sensitive = Sensitive::default();
    let all: Vec<String> = (0..2000).map(|n| format!("000000000000{n:04}")).collect();
    add(&mut sensitive, &all.join("\n"), 1);
    // The first one is the same digit over and over.
    assert_eq!(sensitive.len(), 1999);
    let scanner = sensitive.scanner();
    for (number, token) in all.iter().enumerate().skip(1) {
        assert!(
            scanner
                .scan(token.as_bytes())
                .tokens()
                .any(|n| n == number - 1)
        );
    }
}

#[test]
fn a_copy_goes_its_own_way() {
    let mut one = Sensitive::default();
    add(&mut one, "common-secret-1", 1);
    let mut two = one.clone();
    add(&mut one, "only-in-the-first", 2);
    add(&mut two, "only-in-the-second", 2);
    let found = |s: &Sensitive, text: &str| s.scanner().scan(text.as_bytes()).tokens().count();
    assert_eq!(found(&one, "only-in-the-first"), 1);
    assert_eq!(found(&one, "only-in-the-second"), 0);
    assert_eq!(found(&two, "only-in-the-second"), 1);
    assert_eq!(found(&two, "only-in-the-first"), 0);
    assert_eq!(found(&two, "common-secret-1"), 1);
}

#[test]
fn numbers_are_the_same_again_and_translate() {
    let texts = [
        "alpha-1111\nbeta-22222",
        "KEY=gamma-333\nbeta-22222",
        "delta-4444",
    ];
    let build = |skip: usize| {
        let mut sensitive = Sensitive::default();
        for (event, text) in texts.iter().enumerate().skip(skip) {
            add(&mut sensitive, text, event as u64);
        }
        sensitive
    };
    let (one, again, other) = (build(0), build(0), build(1));
    let carried = one.scanner().scan(b"delta-4444 gamma-333 alpha-1111");
    assert_eq!(
        carried,
        again.scanner().scan(b"delta-4444 gamma-333 alpha-1111")
    );
    assert_eq!(
        other.translated(&carried, &one),
        other.scanner().scan(b"delta-4444 gamma-333 alpha-1111")
    );
}

#[test]
fn levels_and_origins() {
    let mut sensitive = Sensitive::default();
    let env = Source::Location {
        tree: "workspace".into(),
        path: ".env".into(),
    };
    let mut text = String::new();
    for _ in 0..700 {
        text.push('\n');
    }
    text += "A=first-secret\nB=second-secret\n";
    sensitive.add_text(&text, Level::Confidential, &env, EventId(7));
    sensitive.add_text(
        "x\nsecond-secret",
        Level::Critical,
        &Source::Task,
        EventId(8),
    );
    let scanner = sensitive.scanner();
    let first = scanner.scan(b"first-secret");
    let second = scanner.scan(b"second-secret");
    assert_eq!(sensitive.level_of(&first), Level::Confidential);
    assert_eq!(sensitive.level_of(&second), Level::Critical);
    assert_eq!(sensitive.origins_of(&first, Level::Confidential), []);
    let origins = sensitive.origins_of(&second, Level::Public);
    assert_eq!(origins.len(), 1);
    assert_eq!((origins[0].line, origins[0].event), (702, EventId(7)));
    assert_eq!(origins[0].source, env);
}

#[test]
fn public_before_is_no_secret_and_after_is_one() {
    let mut sensitive = Sensitive::default();
    sensitive.met_in_public("use production-host and a-very-long-public-name-that-is-cut-into-parts-because-it-has-no-end here");
    add(
        &mut sensitive,
        "HOST=production-host\nKEY=hunter2-hunter\na-very-long-public-name-that-is-cut-into-parts-because-it-has-no-end",
        1,
    );
    sensitive.met_in_public("hunter2-hunter");
    let scanner = sensitive.scanner();
    assert_eq!(scanner.scan(b"production-host a-very-long-public-name-that-is-cut-into-parts-because-it-has-no-end").tokens().count(), 0);
    assert_eq!(scanner.scan(b"hunter2-hunter").tokens().count(), 1);
}

#[test]
fn marks_are_found_in_any_form_and_are_no_tokens() {
    let mut sensitive = Sensitive::default();
    add(&mut sensitive, "hunter2-hunter", 1);
    let mark = "kairos-0123456789abcdef0123456789abcdef";
    sensitive.add_mark(HoldId(5), mark);
    add(&mut sensitive, "another-secret", 2);
    let scanner = sensitive.scanner();
    for text in [
        mark.to_string(),
        mark.to_uppercase(),
        mark.replace('-', "%2d"),
    ] {
        let carried = scanner.scan(text.as_bytes());
        assert_eq!(carried.marks().collect::<Vec<_>>(), [HoldId(5)]);
        assert_eq!(carried.tokens().count(), 0);
        assert_eq!(sensitive.level_of(&carried), Level::Public);
    }
    assert_eq!(
        sensitive.level_of(&scanner.scan(b"another-secret")),
        Level::Critical
    );
}

#[test]
fn debug_shows_no_bytes() {
    let mut sensitive = Sensitive::default();
    add(&mut sensitive, "hunter2-hunter", 1);
    let scanner = sensitive.scanner();
    let mut scan = scanner.start();
    scan.feed(b"hunter2-hunter");
    let shown = format!("{sensitive:?} {scanner:?} {scan:?}");
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(!shown.contains("104"), "{shown}");
}
