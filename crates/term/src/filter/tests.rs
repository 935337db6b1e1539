//! What passes and what does not, and that the cut between two reads never matters.

use super::Filter;
use proptest::prelude::*;

fn filtered(chunks: &[&[u8]]) -> Vec<u8> {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    for chunk in chunks {
        filter.feed(chunk, &mut out);
    }
    out
}

#[track_caller]
fn check(input: &[u8], expect: &[u8]) {
    let got = filtered(&[input]);
    assert_eq!(
        got.escape_ascii().to_string(),
        expect.escape_ascii().to_string()
    );
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(filtered(&bytes), got, "byte by byte it must be the same");
}

#[track_caller]
fn passes(input: &str) {
    check(input.as_bytes(), input.as_bytes());
}

/// Dropped whole, and the text around it stays.
#[track_caller]
fn drops(sequence: &[u8]) {
    check(
        &[b"before ", sequence, b" after"].concat(),
        b"before  after",
    );
}

#[test]
fn text_and_harmless_sequences_pass() {
    passes("plain\r\n\ttext \x07\x08 é Л 漢 😀 \u{85}\u{a0}");
    passes(
        "\x1b[1;31mred\x1b[0m\x1b[38:2::10:20:30m\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H\x1b[3;7r\x1b[6 q",
    );
    passes("\x1b(0lqk\x1b(B\x1b)0\x0e\x0f\x1b7\x1b8\x1bM\x1bc\x1b#8\x1b%G\x1b=\x1b>");
    passes("\x1b]0;title é\x07\x1b]2;title\x1b\\\x1b]4;1;?\x07\x1b]104\x07\x1b]112\x1b\\");
    passes("\x1b]8;id=1;https://example.org/a;b\x1b\\link\x1b]8;;\x1b\\");
    passes("\x1b]9;build done\x07\x1b]9;4;1;50\x07\x1b]777;notify;a;b\x07\x1b]133;A\x07");
    passes(
        "\x1bPq#0;2;0;0;0\n#0~~@@vv\x1b\\\x1bP0;1;0q?\x1b\\\x1bP+q544e;524742\x1b\\\x1bP=1s\x1b\\",
    );
    passes("\x1b_Ga=T,f=100,t=d,m=1;iVBORw0KGgo=\x1b\\\x1b_Gm=0;AAAA\x1b\\");
}

#[test]
fn the_queries_that_full_screen_programs_need_pass() {
    for query in [
        "\x1b[c",
        "\x1b[>c",
        "\x1b[=c",
        "\x1b[6n",
        "\x1b[?6n",
        "\x1b[5n",
        "\x1b[?u",
        "\x1b[>1u",
        "\x1b[<u",
        "\x1b]10;?\x07",
        "\x1b]11;?\x1b\\",
        "\x1b[?2026$p",
        "\x1b[>q",
        "\x1b[14t",
        "\x1b[16t",
        "\x1b[18t",
        "\x1b[?996n",
        "\x1b[>4;2m",
        "\x1b[22;0t",
        "\x1b[23;0t",
        "\x1bZ",
    ] {
        passes(query);
    }
}

#[test]
fn what_turns_the_terminal_against_its_owner_is_removed() {
    let refused: &[&[u8]] = &[
        b"\x05",
        b"\x1b]52;c;ZWNobyBoaQ==\x07",
        b"\x1b]52;c;?\x1b\\",
        b"\x1b]052;c;?\x07",
        b"\x1b]7;file://host/tmp\x07",
        b"\x1b]50;?\x07",
        b"\x1b]46;/tmp/log\x07",
        b"\x1b]3;PROP=x\x07",
        b"\x1b]633;E;rm\x07",
        b"\x1b]1337;File=name=YQ==;size=1:YQ==\x07",
        b"\x1b]1337;CopyToClipboard=\x07",
        b"\x1b]1337;ReportVariable=eA==\x07",
        b"\x1b]5522;type=read\x1b\\",
        b"\x1b]99;;x\x1b\\",
        b"\x1b]9;7;\"cmd\"\x07",
        b"\x1b]9;6\x07",
        b"\x1b]8;;file:///etc/passwd\x07",
        b"\x1b]8;;javascript:alert(1)\x07",
        b"\x1b]8;;ssh://-oProxyCommand=x\x07",
        b"\x1b]4;0;\xc2\x9b21t\x07",
        b"\x1b]0;a\nb\x07",
        b"\x1b]0;\xff\x07",
        b"\x1b]P0123456",
        b"\x1b]R",
        b"\x1b[21t",
        b"\x1b[20t",
        b"\x1b[11t",
        b"\x1b[8;10;10t",
        b"\x1b[>2t",
        b"\x1b[021t",
        b"\x1b[4i",
        b"\x1b[5i",
        b"\x1b[?5i",
        b"\x1b[i",
        b"\x1b[7n",
        b"\x1b[1;1;1;1;10;10*y",
        b"\x1b[1$w",
        b"\x1b[1$u",
        b"\x1b[62;0\"p",
        b"\x1b[?2l",
        b"\x1b[?25;2l",
        b"\x1b[?38h",
        b"\x1b[?46h",
        b"\x1b[2h",
        b"\x1bP$qm\x1b\\",
        b"\x1bP0;1|17/41\x1b\\",
        b"\x1bP1$tx\x1b\\",
        b"\x1bP+qzz\x1b\\",
        b"\x1b_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\",
        b"\x1b_Ga=q,t=t;AAAA\x1b\\",
        b"\x1b_Gt=s;AAAA\x1b\\",
        b"\x1b_Ga=T,t=\x1b\\",
        b"\x1b_unknown\x1b\\",
        b"\x1b^private\x1b\\",
        b"\x1bXstring\x1b\\",
        b"\x1bktitle\x1b\\",
        b"\x1b%@",
        b"\x1b G",
        b"\x1bGQ",
    ];
    for sequence in refused {
        match sequence {
            [0x1b, b'G', ..] => check(sequence, b"Q"),
            _ => drops(sequence),
        }
    }
}

#[test]
fn eight_bit_controls_lose_their_first_byte_and_become_text() {
    check(b"a\x9b21tb", b"a21tb");
    check("a\u{9b}21tb".as_bytes(), b"a21tb");
    check(b"\x9d52;c;?\x9c", b"52;c;?");
    check(b"\xe2\x9bX", b"\xe2X");
    check(b"\xc0\x9b[21t", b"\xc0[21t");
    passes("Л\u{1f600}");
}

#[test]
fn broken_sequences_do_not_smuggle() {
    check(b"\x1b[2\x001t", b"\x001t");
    check(b"\x1b\x1b[21t|", b"|");
    check(b"\x1b[2\x1b[21t|", b"|");
    check(b"\x1b]0;x\x1b]52;c;?\x07|", b"|");
    check(b"\x1bPtmux;\x1b\x1b]52;c;?\x07\x1b\\|", b"\x1b\\|");
    check(b"\x1b]52;c;\x18?\x07", b"?\x07");
    check(b"rz\r**\x18B00", b"rz\r**B00");
    check(b"\x1b[\xc3\xa921t", "é21t".as_bytes());
}

#[test]
fn a_string_without_end_gives_the_output_back_after_its_cap() {
    let mut input = b"\x1b]0;".to_vec();
    input.extend(std::iter::repeat_n(b'x', 70 << 10));
    let out = filtered(&[&input]);
    assert!(!out.contains(&0x1b));
    assert!(
        (1000..70 << 10).contains(&out.len()),
        "got {} bytes",
        out.len()
    );
}

#[test]
fn finishing_undoes_what_was_left_on() {
    let mut filter = Filter::new();
    let mut out = Vec::new();
    filter.feed(
        b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?2004l\x1b[>1u\x1b[31m\x1b]0;unfinished",
        &mut out,
    );
    out.clear();
    filter.finish(&mut out);
    assert_eq!(
        out.escape_ascii().to_string(),
        "\\x1b[<1u\\x1b[?25h\\x1b[?1049l\\x1b[0m"
    );
    out.clear();
    filter.finish(&mut out);
    assert!(out.is_empty());
}

/// Pieces that come together to sequences, so that random input is likely to be interesting.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            &b"\x1b"[..],
            b"\x1b[",
            b"\x1b]",
            b"\x1bP",
            b"\x1b_G",
            b"\x1b\\",
            b"\x07",
            b"\x9b",
            b"\xc2\x9b",
            b"\xc2",
            b"\xe2",
            b"\x9d",
            b"21t",
            b"52;c;?",
            b"5i",
            b"t=f",
            b"\x05",
            b"\x18",
            b";",
            b"?",
            b"2l",
            b"$qm",
            b"tmux;",
            b"q",
            b"0;",
            b"\xd0\x9b",
            b"1337;File=:",
            b"8;;file:",
            b"k",
            b"%@",
            b"\n",
        ])
        .prop_map(<[u8]>::to_vec),
        proptest::collection::vec(any::<u8>(), 0..6),
        "[ -~]{0,6}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cuts_do_not_matter(input in hostile(), cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6)) {
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(input.len() + 1)).collect();
        at.extend([0, input.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|w| &input[w[0]..w[1]]).collect();
        prop_assert_eq!(filtered(&chunks), filtered(&[&input]));
    }

    #[test]
    fn filtering_twice_changes_nothing(input in hostile()) {
        // A full reset at the end, so that nothing is left unfinished.
        let once = filtered(&[&input, b"\x1bc."]);
        prop_assert_eq!(filtered(&[&once]), once);
    }

    #[test]
    fn text_is_untouched(text in "[ -~\n\r\t\u{a0}-\u{10ffff}]{0,200}") {
        prop_assert_eq!(filtered(&[text.as_bytes()]), text.into_bytes());
    }

    /// A second, much simpler reader looks for what must not be there.
    #[test]
    fn nothing_forbidden_comes_out(input in hostile()) {
        let out = filtered(&[&input]);
        prop_assert!(!out.contains(&0x05) && !out.contains(&0x18));
        for (at, _) in out.iter().enumerate().filter(|(_, b)| **b == 0x1b) {
            let rest = &out[at + 1..];
            let whole = |from: usize| {
                let end = rest[from..].iter().position(|b| (0x40..=0x7e).contains(b)).map(|n| from + n);
                end.map(|end| (&rest[from..end], rest[end]))
            };
            match rest.first() {
                Some(b'[') => {
                    let (body, last) = whole(1).expect("no unfinished CSI comes out");
                    prop_assert!(last != b'i' && body.is_ascii());
                    let number = body.split(|b| *b == b';').next().unwrap_or_default();
                    let number = String::from_utf8_lossy(number).trim_start_matches('0').to_owned();
                    prop_assert!(last != b't' || ["14", "16", "18", "22", "23"].contains(&number.as_str()) || body.contains(&b'$') || body.contains(&b' ') || !body.iter().all(|b| b.is_ascii_digit() || *b == b';' || *b == b':'), "{:?}", body);
                }
                Some(b']') => prop_assert!(!rest[1..].starts_with(b"52") && !rest[1..].starts_with(b"1337")),
                Some(b'P') => prop_assert!(!rest[1..].starts_with(b"$q") && !rest[1..].starts_with(b"tmux")),
                Some(b'_') => prop_assert!(rest[1..].starts_with(b"G") && !rest.split(|b| *b == 0x1b).next().unwrap().windows(3).any(|w| matches!(w, b"t=f" | b"t=s" | b"t=t"))),
                other => prop_assert!(other.is_some(), "a lone ESC came out"),
            }
        }
        let text = String::from_utf8_lossy(&out);
        let introducer = text.chars().any(|c| matches!(u32::from(c), 0x90 | 0x98 | 0x9b..=0x9f));
        prop_assert!(!introducer);
    }
}
