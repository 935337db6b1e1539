//! What a policy with mistakes is answered with: where, what, and what to write instead.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::path::Path;

use proptest::prelude::*;

fn errors(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kairos.toml");
    std::fs::write(&path, text).unwrap();
    match policy::load(Some(&path), dir.path(), dir.path()) {
        Ok(_) => format!("NO MISTAKE FOUND IN\n{text}"),
        Err(errors) => errors
            .to_string()
            .replace(dir.path().to_str().unwrap(), "DIR"),
    }
}

fn all(texts: &[&str]) -> String {
    texts
        .iter()
        .map(|text| errors(text))
        .collect::<Vec<_>>()
        .join("\n\n────\n\n")
}

#[test]
fn several_at_once() {
    insta::assert_snapshot!(errors(
        "[task]\ntrustd = true\n\n[workspace]\ntrusted = [\"paths\", \"host\"]\n\n[[sensitive]]\npath = \"x\"\nlevel = \
         \"secret\"\n\n[[party]]\nname = \"a\"\n\n[wrkspace]\n"
    ));
}

#[test]
fn what_is_not_toml() {
    insta::assert_snapshot!(all(&[
        "[task\ntrusted = true\n",
        "task = = 3\n",
        "a = \"x\nb = 1\n"
    ]));
}

#[test]
fn tables_and_types() {
    insta::assert_snapshot!(all(&[
        "task = true\n",
        "[[task]]\ntrusted = true\n",
        "[task]\ntrusted = 3\n",
        "source = \"README.md\"\n",
        "[workspace]\ntrusted = [\"path\", 3]\n",
        "[limits]\nholds = -1\nbytes = \"4 gigs\"\nage = 1.5\n",
        "[limits]\nrate = \"10\"\nconnections = \"many\"\nhead = \"1KiB\"\nheaders = 1\nbody = \"big\"\n",
        "[oracle]\ndeadline = \"soon\"\n",
        "[speculation]\nmode = \"wild\"\n",
        "[files]\nreads = \"never\"\ndurable = 1\n",
        "[agent]\nenv = [\"A=b\"]\nread_only = [\"/x\"]\n",
    ]));
}

#[test]
fn sources_and_patterns() {
    insta::assert_snapshot!(all(&[
        "[[source]]\npath = \"docs/**\"\n",
        "[[source]]\npath = \"docs\"\nparty = \"a.example\"\ntrusted = [\"host\"]\n",
        "[[sensitive]]\npath = \"../secrets\"\n",
        "[[sensitive]]\npath = \"a**b\"\n",
        "[[sensitive]]\npath = \"a !b\"\n",
        "[[sensitive]]\npath = \"*.{a,b}\"\n",
        "[[sensitive]]\npath = \"~/.ssh/id_rsa\"\n",
        "[[executes]]\nplace = \"x\"\n",
        "[defaults]\nexecutes = [\"git\", \"cl\"]\n",
    ]));
}

#[test]
fn parties() {
    insta::assert_snapshot!(all(&[
        "[[party]]\nhosts = [\"https://api.example.org/v1\"]\n",
        "[[party]]\nhosts = [\"api.example.org:8443\"]\n",
        "[[party]]\nhosts = [\"api.*.org\"]\n",
        "[[party]]\nhosts = [\"bücher.example\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nmethods = [\"GET\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nallow = [\"get\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nallow = [\"POST graphql\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\npaths = [\"v1\"]\nports = [0]\n",
        "[[party]]\npreset = \"crates\"\n",
        "[[party]]\nhosts = [\"a.example\"]\n[[party]]\nname = \"b\"\nhosts = [\"a.example\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nprovider = \"opnai\"\n",
        "[[party]]\nhosts = [\"a.example\"]\nupstream = \"127.0.0.1:80\"\n",
        "[[party]]\nhosts = [\"a.example\"]\nupstream = \"http://127.0.0.1:80/x\"\n",
        "[[party]]\nhosts = [\"a.example\"]\nroots = [\"none.pem\", \"kairos.toml\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nkey = \"client.key\"\n",
        "[[party]]\nhosts = [\"a.example\"]\ncertificate = \"kairos.toml\"\nkey = \"kairos.toml\"\n",
        "[[party]]\nhosts = [\"a.example\"]\nhost_keys = [\"ssh-ed25519\", \"aa:bb\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nrate = \"fast\"\nconnections = 0\n",
        "[[provider]]\nname = \"local\"\n",
        "[[provider]]\nbase_url = \"localhost:11434\"\n",
        "[[credential]]\nenv = \"X\"\n",
        "[[credential]]\nenv = \"X\"\nhosts = [\"*\"]\nvalue = \"s3cret\"\n",
    ]));
}

#[test]
fn the_agents_places() {
    insta::assert_snapshot!(all(&[
        "[agent]\nstate = [\"relative\"]\n",
        "[agent]\nstate = [\"~/a\", \"~/a/b\"]\n",
        "[agent]\nstate = [\"/../etc\"]\nexpose = [\"/opt/*\"]\n",
    ]));
}

#[test]
fn rules() {
    let rule = |cedar: &str| format!("[[rule]]\nname = \"r\"\ncedar = '''\n{cedar}\n'''\n");
    let texts = [
        rule("permit(principal, action, resource);"),
        rule("forbid(principal, action, resource) when { resource.host == }"),
        rule(
            "forbid(principal, action == Kairos::Action::\"request\", resource) when { resource.hots == \"x\" };",
        ),
        rule("forbid(principal, action == Kairos::Action::\"reqest\", resource);"),
        rule("forbid(principal, action, resource) when { context.rank > \"2\" };"),
        rule("forbid(principal, action, resource == ?resource);"),
        rule(""),
        "[[rule]]\nname = \"r\"\n".to_string(),
        "rules = \"none.cedar\"\n".to_string(),
        "[task]\ntrusted = true\nrules = \"none.cedar\"\n".to_string(),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    insta::assert_snapshot!(all(&texts));
}

#[test]
fn files_that_cannot_be_policies() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bytes.toml"), b"\xff\xfe").unwrap();
    std::fs::write(dir.path().join("long.toml"), vec![b'#'; 5 << 20]).unwrap();
    let told = |name: &str| {
        let path = dir.path().join(name);
        policy::load(Some(&path), dir.path(), dir.path())
            .unwrap_err()
            .to_string()
    };
    let all = [
        told("none.toml"),
        told(""),
        told("bytes.toml"),
        told("long.toml"),
        told("kairos.toml/x"),
    ];
    insta::assert_snapshot!(
        all.join("\n\n")
            .replace(dir.path().to_str().unwrap(), "DIR")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn loading_never_panics(text in ".{0,300}") {
        let _ = errors(&text);
    }

    #[test]
    fn changing_a_good_policy_never_panics(cuts in proptest::collection::vec((0usize..4000, ".{0,3}"), 1..6)) {
        let mut text = GOOD.to_string();
        for (at, put) in cuts {
            let mut at = at % text.len();
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let end = (at + put.len() + 1..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
            text.replace_range(at..end, &put);
        }
        let _ = errors(&text);
    }
}

const GOOD: &str = include_str!("good.toml");

#[test]
fn a_policy_that_uses_every_key_has_no_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kairos.toml");
    std::fs::write(&path, GOOD).unwrap();
    if let Err(errors) = policy::load(Some(&path), Path::new("/w"), Path::new("/h")) {
        panic!("{errors}");
    }
}

#[test]
fn tools_and_what_their_answers_may_steer() {
    let send = "[[tool]]\nname = \"send_mail\"\neffect = \"act\"\ngate = { to = \"email\" }\n";
    let with = |rest: &str| format!("{send}{rest}");
    insta::assert_snapshot!(all(&[
        "[[tool]]\nname = \"send_mail\"\n",
        "[[tool]]\nname = \"send_mail\"\neffect = \"write\"\n",
        "[[tool]]\nname = \"send mail\"\neffect = \"act\"\nclass = \"slow\"\n",
        "[[tool]]\nname = \"send_mail\"\neffect = \"act\"\ngate = [\"to\"]\n",
        "[[tool]]\nname = \"send_mail\"\neffect = \"act\"\ngate = { to = \"mail\" }\ninside = { body = [\"link\"] }\n",
        "[[tool]]\nname = \"send_mail\"\neffect = \"act\"\ngated = { to = \"email\" }\n",
        &with(
            "[[typed]]\nfrom = \"contacts\"\nfield = \"*.email\"\nkind = \"email\"\nto = \"send_mail.to\"\n"
        ),
        &with(
            "[[tool]]\nname = \"contacts\"\neffect = \"read\"\n[[typed]]\nfrom = \"contacts\"\nfield = \"*.email\"\n\
             kind = \"email\"\nto = [\"send_mail\", \"sendmail.to\", \"send_mail.subject\"]\nwhen = \"chosen\"\n"
        ),
        &with(
            "[[typed]]\nfrom = \"send_mail\"\nfield = \"id\"\nkind = \"id\"\nto = \"send_mail.to\"\nmatch = \"all\"\n\
             where = { sender = { is = [\"a\"], named = true }, title = \"txt\", x = 3 }\n"
        ),
        &with("[[typed]]\nfrom = \"send_mail\"\n"),
        "[derive]\nsubstrings = true\nbelow = \"no\"\n",
        "[values]\nmail = [\"a@b.example\"]\npath = [\"/tmp/../etc\"]\n",
        "[[sensitive]]\npath = \"x\"\nfield = \"passport\"\n",
    ]));
}

#[test]
fn what_could_not_run() {
    insta::assert_snapshot!(all(&[
        "[[party]]\nhosts = [\"a.example\"]\nallow = [\"FETCH\", \"get\", \"POST /x\"]\n",
        "[[party]]\nhosts = [\"a.example\"]\nblocking = [\"SEND /x\"]\n",
    ]));
}
