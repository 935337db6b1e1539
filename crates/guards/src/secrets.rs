//! Places that hold secrets by their name, and secrets by their form.

use std::collections::BTreeSet;

/// Names that hold secrets in most projects: a name at any depth, or the end of a path.
const NAMES: [&str; 34] = [
    ".env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".vault-token",
    ".s3cfg",
    ".boto",
    "credentials",
    "credentials.json",
    "credentials.yml",
    "credentials.yaml",
    "secrets",
    "secrets.json",
    "secrets.yml",
    "secrets.yaml",
    "secrets.toml",
    "secret.key",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "master.key",
    "service-account.json",
    "serviceaccount.json",
    "kubeconfig",
    "shadow",
    "token",
    "tokens.json",
    "wallet.dat",
];
const ENDINGS: [&str; 9] = [
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".kdbx",
    ".ppk",
    ".asc",
];
const PATHS: [&str; 7] = [
    ".aws/credentials",
    ".ssh/",
    ".gnupg/",
    ".kube/config",
    ".docker/config.json",
    "/proc/self/environ",
    ".config/gcloud/",
];
/// Names that look like secrets and are examples.
const EXAMPLES: [&str; 6] = [".example", ".sample", ".template", ".dist", ".pub", ".md"];

/// Words of a secret shorter than this are not looked for.
const TOKEN_CHARACTERS_MIN: usize = 8;
/// Tokens that are remembered from one place.
const TOKENS_MAX: usize = 200;

/// Whether a path names a place that holds secrets.
pub fn is_sensitive(path: &str, more: &[String]) -> bool {
    let path = path.trim().trim_matches(['"', '\'']);
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if name.is_empty() && !PATHS.iter().any(|place| path.ends_with(place)) {
        return false;
    }
    if EXAMPLES.iter().any(|ending| name.ends_with(ending)) {
        return false;
    }
    let wild = name.contains(['*', '?']);
    let lower = path.to_ascii_lowercase();
    NAMES.contains(&name.as_str())
        || name.starts_with(".env.")
        || wild && NAMES.iter().any(|known| wildcard(&name, known))
        || ENDINGS
            .iter()
            .any(|ending| name.ends_with(ending) && name.len() > ending.len())
        || PATHS.iter().any(|place| lower.contains(place))
        || more.iter().any(|pattern| pattern_matches(pattern, path))
}

/// A pattern of the policy: a name at any depth, or a path below the workspace; `*` for any ending.
fn pattern_matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_matches('/');
    let path = path.trim_start_matches("./");
    let name = path.rsplit('/').next().unwrap_or(path);
    if pattern.contains('/') {
        let pattern = pattern.trim_end_matches("/**").trim_end_matches("/*");
        return path.ends_with(pattern)
            || path.starts_with(&format!("{pattern}/"))
            || path.contains(&format!("/{pattern}/"));
    }
    wildcard(pattern, name)
}

fn wildcard(pattern: &str, text: &str) -> bool {
    match pattern.split_once(['*', '?']) {
        None => pattern == text,
        Some((start, rest)) => match text.strip_prefix(start) {
            None => false,
            // Only the last part is checked: a guard may notice too much.
            Some(after) => after.ends_with(rest.trim_matches(['*', '?'])),
        },
    }
}

/// Paths that an argument may name: the whole, and what follows the signs before a file name.
pub fn paths_in(argument: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if argument.len() > 4096 || argument.is_empty() {
        return found;
    }
    found.insert(argument.to_owned());
    for part in argument.split([
        '=', '@', ',', '<', ';', ' ', '\n', '"', '\'', '(', ')', '[', ']', '{', '}',
    ]) {
        let part = part.trim();
        if !part.is_empty() {
            found.insert(part.to_owned());
        }
        // `host:path`, but no `https://…`.
        if let Some((_, after)) = part.split_once(':')
            && !after.starts_with("//")
            && !after.is_empty()
        {
            found.insert(after.to_owned());
        }
    }
    found
}

/// The words of a text that holds secrets which are secret themselves: values, keys.
pub fn tokens(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let value = line
            .split_once('=')
            .or_else(|| line.split_once(": "))
            .map_or(line, |(_, value)| value);
        for word in value.split([' ', '\t', ',', '"', '\'', ';', '<', '>', '(', ')']) {
            let word = word.trim();
            if word.chars().count() >= TOKEN_CHARACTERS_MIN
                && looks_secret(word)
                && found.len() < TOKENS_MAX
            {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

/// Neither a word of a language, nor a path, nor an address.
fn looks_secret(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let letters = word.chars().filter(char::is_ascii_alphabetic).count();
    let plain = word
        .chars()
        .all(|c| c.is_ascii_lowercase() || c == '-' || c == '.' || c == '/' || c == '_');
    let address = word.contains("://") && !word.contains('@');
    !plain
        && !address
        && (digits > 0 && letters > 0 || word.len() >= 16 || word.contains('-') && digits > 0)
}

/// The forms in which a token may appear in a command.
pub fn forms(token: &str) -> Vec<String> {
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    let reversed: String = token.chars().rev().collect();
    let mut forms = vec![token.to_owned(), hex, reversed];
    // Base64 at any offset: the middle of it, which does not depend on what stands around.
    for offset in 0..3usize {
        let padded: Vec<u8> = std::iter::repeat_n(b'x', offset)
            .chain(token.bytes())
            .collect();
        let coded = base64(&padded);
        let start = (offset * 8).div_ceil(6);
        let end = (padded.len() * 8) / 6;
        if let Some(middle) = coded.get(start..end)
            && middle.len() >= TOKEN_CHARACTERS_MIN
        {
            forms.push(middle.to_owned());
        }
    }
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=chunk.len() {
            let index = (bits >> (18 - 6 * digit)) & 63;
            let letter = usize::try_from(index)
                .ok()
                .and_then(|index| DIGITS.get(index));
            out.push(letter.copied().map_or('A', char::from));
        }
    }
    out
}

/// The longest run of base64 or hexadecimal digits.
pub fn longest_blob(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0usize;
    let mut kinds = [false; 3];
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_') {
            run += 1;
            match c {
                'a'..='z' => kinds[0] = true,
                'A'..='Z' => kinds[1] = true,
                '0'..='9' => kinds[2] = true,
                _ => {}
            }
        } else {
            if kinds.iter().filter(|kind| **kind).count() >= 2 {
                longest = longest.max(run);
            }
            run = 0;
            kinds = [false; 3];
        }
    }
    if kinds.iter().filter(|kind| **kind).count() >= 2 {
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for path in [
            ".env",
            "a/.env",
            ".env.production",
            "/home/u/.ssh/id_rsa",
            "server.pem",
            ".aws/credentials",
            "~/.netrc",
            ".en?",
            "x.key",
        ] {
            assert!(is_sensitive(path, &[]), "{path}");
        }
        for path in [
            ".env.example",
            "README.md",
            "src/main.rs",
            "environment",
            "id_rsa.pub",
            "",
            "/",
            "keyboard",
        ] {
            assert!(!is_sensitive(path, &[]), "{path}");
        }
        assert!(is_sensitive("conf/prod.yml", &["conf/prod.yml".into()]));
        assert!(is_sensitive("x/a.vault", &["*.vault".into()]));
    }

    #[test]
    fn words_of_secrets() {
        let found =
            tokens("# note\nAPI_KEY=dummy-secret-0123456789\nMODE=test\nURL=https://a.example/b\n");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["dummy-secret-0123456789"]
        );
        assert_eq!(base64(b"hello"), "aGVsbG8");
        let forms = forms("dummy-secret-0123456789");
        for whole in [
            "ZHVtbXktc2VjcmV0LTAxMjM0NTY3ODkK",
            "S0VZPWR1bW15LXNlY3JldC0wMTIzNDU2Nzg5Cg==",
        ] {
            assert!(
                forms.iter().any(|form| whole.contains(form)),
                "{whole} {forms:?}"
            );
        }
        assert_eq!(longest_blob(&format!("x {} y", "aB3/".repeat(40))), 160);
        assert_eq!(longest_blob("the quick brown fox"), 0);
    }
}
