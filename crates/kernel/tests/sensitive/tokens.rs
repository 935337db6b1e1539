//! Which parts of a content are tokens.

use kernel::sensitive::Sensitive;
use kernel::{EventId, Level, Source};

fn of_text(text: &str) -> Sensitive {
    let mut sensitive = Sensitive::default();
    sensitive.add_text(text, Level::Critical, &Source::Task, EventId(1));
    sensitive
}

#[test]
fn values_count_and_names_do_not() {
    let sensitive = of_text(
        "export DATABASE_URL=postgres://app:p4ss-w0rd@db.internal/main\nlonger_name: short\n",
    );
    for (token, is) in [
        ("p4ss-w0rd", true),
        ("postgres", false),
        ("db.internal/main", true),
        ("postgres://app:p4ss-w0rd@db.internal/main", true),
        ("DATABASE_URL", false),
        ("longer_name", false),
        ("short", false),
    ] {
        assert_eq!(
            sensitive.number_of(token.as_bytes()).is_some(),
            is,
            "{token}"
        );
    }
}

#[test]
fn a_phrase_of_short_or_public_words_is_a_token() {
    let sensitive = of_text("PASS=to be or not to be\n\na bc def gh ij kl mno\nfor you\n");
    assert!(sensitive.number_of(b"to be or not to be").is_some());
    assert!(sensitive.number_of(b"a bc def gh ij kl mno").is_some());
    assert!(sensitive.number_of(b"for you").is_none());
    let mut sensitive = Sensitive::default();
    sensitive.met_in_public("correct and battery and staple");
    sensitive.add_text(
        "correct horse battery staple",
        Level::Critical,
        &Source::Task,
        EventId(1),
    );
    let found = |text: &[u8]| !sensitive.scanner().scan(text).is_empty();
    assert!(found(b"correct horse battery staple"));
    assert!(found(b"horse battery staple") && !found(b"correct horse"));
    assert!(sensitive.number_of(b"battery").is_none());
}

#[test]
fn any_longer_part_of_a_long_token_is_found() {
    let long: String = (0..400)
        .map(|i| char::from(b'a' + (i * i % 23) as u8))
        .collect();
    let scanner = of_text(&long).scanner();
    for start in (0..long.len() - 63).step_by(7) {
        let part = &long[start..start + 63];
        assert!(
            scanner.scan(part.as_bytes()).tokens().next().is_some(),
            "{start}"
        );
    }
}

#[test]
fn binary_content_is_known_by_its_parts() {
    let bytes: Vec<u8> = (0..200_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut sensitive = Sensitive::default();
    sensitive.add_bytes(&bytes, Level::Critical, &Source::Task, EventId(1));
    let scanner = sensitive.scanner();
    for start in [0, 17, 5000, 190_001] {
        assert!(
            !scanner.scan(&bytes[start..start + 63]).is_empty(),
            "{start}"
        );
    }
    // Padding is not content.
    let mut padding = Sensitive::default();
    padding.add_bytes(&[0; 4096], Level::Critical, &Source::Task, EventId(1));
    assert!(padding.is_empty());
}

#[test]
fn text_in_utf16_is_text() {
    for little in [true, false] {
        let wide: Vec<u8> = "PASS=hunter2-hunter"
            .encode_utf16()
            .flat_map(|u| {
                if little {
                    u.to_le_bytes()
                } else {
                    u.to_be_bytes()
                }
            })
            .collect();
        let mut sensitive = Sensitive::default();
        sensitive.add_bytes(&wide, Level::Critical, &Source::Task, EventId(1));
        assert!(sensitive.number_of(b"hunter2-hunter").is_some());
    }
}

#[test]
fn a_name_has_no_case() {
    let scanner = of_text("Hunter7\nLonger-Secret").scanner();
    assert!(scanner.scan(b"hunter7.example").is_empty());
    assert!(!scanner.scan_name("hunter7.example").is_empty());
    assert!(!scanner.scan(b"longer-secret.example").is_empty());
}

#[test]
fn half_a_key_is_found_and_half_a_sentence_is_not() {
    let key = "sk-proj-a8Kd72mQx91LpZ4vR6tY0wBn5cF3";
    let scanner = of_text(&format!(
        "KEY={key}\nNOTE=the quick brown fox jumps over 2 dogs at 10pm"
    ))
    .scanner();
    for part in [
        &key[..key.len() - 1],
        &key[1..],
        &key[8..26],
        &key[key.len() - 16..],
    ] {
        assert!(!scanner.scan(part.as_bytes()).is_empty(), "{part}");
    }
    for part in [&key[..12], "brown fox jumps over 2", "sk-proj-"] {
        assert!(scanner.scan(part.as_bytes()).is_empty(), "{part}");
    }
}

/// What ordinary texts have in common with a source of secrets is no secret; what only the source has is one.
#[test]
fn words_that_everybody_writes_are_no_tokens() {
    let env = "# database\nDATABASE_URL=postgres://app:s3cr3tPassw0rd@localhost:5432/production\nNODE_ENV=development\n\
        LOG_LEVEL=warning\nAWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYKEY\nFEATURE_FLAGS=enabled\nPIN=493817\n\
        ADMIN_EMAIL=admin@company.example\nWIFI=qzkxwvjhpt\nSINCE=2024-12-15\nPHONE=+49 170 5550199\n";
    let customers = "id,name,email,city,status\n1,Anna Schmidt,anna@mail.example,Berlin,active\n2,John Miller,john@mail.example,London,inactive\n";
    let prose = "Dear team, please find attached the minutes of our meeting. The customer asked whether we can change the delivery \
        address before Thursday; I promised an answer.\nShip it to 17 Rosenthaler Strasse, Berlin.";
    let scanner = of_text(&[env, customers, prose].join("\n")).scanner();
    for text in [
        "production database on localhost, development and warning are enabled since 2024-12-15",
        "the customer is active in London; Berlin is inactive: status, email, city",
        "please find the address of the team: minutes, meeting, delivery, Thursday, attached answer",
        "Dear customer, our team asked before.",
    ] {
        assert!(scanner.scan(text.as_bytes()).is_empty(), "{text}");
    }
    for text in [
        "s3cr3tPassw0rd",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYKEY",
        "pin 493817",
        "admin@company.example",
        "qzkxwvjhpt",
        "5550199",
        "to Anna Schmidt",
        "anna@mail.example",
        "please find attached the minutes of our meeting",
        "asked whether we can change the delivery address before",
        "it goes to 17 Rosenthaler Strasse, Berlin",
    ] {
        assert!(!scanner.scan(text.as_bytes()).is_empty(), "{text}");
    }
}

/// Phrases that were met in public before are found as such wherever they begin there.
#[test]
fn a_public_phrase_is_no_token() {
    let mut sensitive = Sensitive::default();
    sensitive.met_in_public(
        "We say: please find attached the minutes of our meeting, all of them, as ever.",
    );
    let text = "attached the minutes of our meeting, all of them";
    sensitive.add_text(text, Level::Critical, &Source::Task, EventId(1));
    assert_eq!(sensitive.len(), 0);
    let text = "find attached the plan of our merger with nobody else";
    sensitive.add_text(text, Level::Critical, &Source::Task, EventId(2));
    assert!(
        !sensitive
            .scanner()
            .scan(b"the plan of our merger with nobody")
            .is_empty()
    );
}
