//! The keys that an agent is given: with these a model provider's account is the principal's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Where agents keep their keys, below their state directories.
const FILES: [&str; 8] = [
    "auth.json",
    "credentials.json",
    ".credentials.json",
    "oauth_creds.json",
    "hosts.json",
    "apps.json",
    "models.json",
    "settings.json",
];
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Directories below a state directory that are looked into.
const DEPTH_MAX: usize = 2;

/// What stands in the agent's environment and in its own files of keys, as they are before it runs; what
/// is too short for a key is among it.
pub(crate) fn given<'a>(
    environment: impl Iterator<Item = &'a OsString>,
    states: impl Iterator<Item = &'a PathBuf>,
) -> Vec<String> {
    let mut keys: Vec<String> = environment
        .filter_map(|value| value.to_str())
        .map(str::to_string)
        .collect();
    for state in states {
        collect(state, DEPTH_MAX, &mut keys);
    }
    keys
}

fn collect(dir: &Path, depth: usize, keys: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let named = FILES.iter().any(|name| entry.file_name() == *name);
        if kind.is_dir() && depth > 0 {
            collect(&entry.path(), depth - 1, keys);
        } else if kind.is_file()
            && named
            && entry
                .metadata()
                .is_ok_and(|found| found.len() <= FILE_BYTES_MAX)
            && let Ok(text) = std::fs::read(entry.path())
            && let Ok(value) = serde_json::from_slice::<Value>(&text)
        {
            strings(&value, keys);
        }
    }
}

fn strings(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::String(text) => keys.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, keys)),
        Value::Object(fields) => fields.values().for_each(|item| strings(item, keys)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_the_environment_and_in_files_of_keys() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "auth.json",
            r#"{"tokens":{"access_token":"access-token-1"}}"#,
        );
        write(
            "agent/models.json",
            r#"{"providers":[{"apiKey":"key-of-a-model"}]}"#,
        );
        write("notes.json", r#"{"key":"not-a-file-of-keys"}"#);
        write("a/b/c/auth.json", r#"{"key":"too-far-below"}"#);
        write("credentials.json", "no JSON");
        let environment = [OsString::from("sk-environment"), OsString::from("C")];
        let states = [home.path().to_path_buf(), home.path().join("not there")];
        let mut keys = given(environment.iter(), states.iter());
        keys.sort();
        assert_eq!(
            keys,
            ["C", "access-token-1", "key-of-a-model", "sk-environment"]
        );
    }
}
