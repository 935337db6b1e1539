//! Shell commands and files inside tool calls, whatever the tool calls its arguments. More may be
//! found than runs, never less for the tools that agents are known to have.

use serde_json::{Map, Value};

/// Longer arguments are looked into this far.
const DEPTH_MAX: usize = 6;

/// A file that a tool call writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its path as the tool got it.
    pub path: String,
    /// Its content, or what is added to it.
    pub content: String,
}

/// The shell commands that a tool call runs.
#[must_use]
pub fn commands(name: &str, arguments: &str) -> Vec<String> {
    let mut found = Vec::new();
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(map)) => walk(&map, 0, &mut found),
        Ok(Value::String(text)) => free(name, &text, &mut found),
        _ => free(name, arguments, &mut found),
    }
    found.dedup();
    found
}

/// The files that a tool call writes.
#[must_use]
pub fn written(arguments: &str) -> Vec<Written> {
    const PATHS: [&str; 7] = [
        "path",
        "file_path",
        "filePath",
        "absolute_path",
        "filepath",
        "target_file",
        "filename",
    ];
    const CONTENTS: [&str; 8] = [
        "content",
        "contents",
        "file_text",
        "text",
        "new_string",
        "newString",
        "new_text",
        "new_str",
    ];
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(arguments) else {
        return patch(arguments);
    };
    let first = |keys: &[&str]| {
        keys.iter()
            .find_map(|key| map.get(*key).and_then(Value::as_str))
    };
    if let (Some(path), Some(content)) = (first(&PATHS), first(&CONTENTS)) {
        return vec![Written {
            path: path.to_owned(),
            content: content.to_owned(),
        }];
    }
    ["patch", "input", "diff"]
        .iter()
        .filter_map(|key| map.get(*key).and_then(Value::as_str))
        .flat_map(patch)
        .collect()
}

/// Paths that a tool call names, of whatever kind.
#[must_use]
pub fn paths(arguments: &str) -> Vec<String> {
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(arguments) else {
        return Vec::new();
    };
    let named = |key: &str| {
        let key = key.to_ascii_lowercase();
        key.contains("path") || key.contains("file") || key == "uri"
    };
    let mut found = Vec::new();
    for (_, value) in map.iter().filter(|(key, _)| named(key)) {
        match value {
            Value::String(path) => found.push(path.clone()),
            Value::Array(paths) => {
                found.extend(paths.iter().filter_map(|item| match item {
                    Value::String(path) => Some(path.clone()),
                    Value::Object(item) => item.iter().find_map(|(key, value)| {
                        named(key).then(|| value.as_str().map(str::to_owned))?
                    }),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    found
}

fn walk(map: &Map<String, Value>, depth: usize, found: &mut Vec<String>) {
    if depth > DEPTH_MAX {
        return;
    }
    for (key, value) in map {
        let key = key.to_ascii_lowercase();
        let is_command = matches!(
            key.as_str(),
            "command" | "cmd" | "commands" | "script" | "shell_command" | "bash" | "argv" | "code"
        );
        match value {
            Value::String(text) if is_command => found.push(text.clone()),
            Value::Array(parts) if is_command && key != "commands" => {
                let words: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
                if words.len() == parts.len() && !words.is_empty() {
                    found.push(argv(&words));
                } else {
                    walk_list(parts, depth, found);
                }
            }
            Value::Array(parts) => {
                if is_command {
                    found.extend(parts.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                walk_list(parts, depth, found);
            }
            Value::Object(inner) => walk(inner, depth + 1, found),
            _ => {}
        }
    }
}

fn walk_list(parts: &[Value], depth: usize, found: &mut Vec<String>) {
    for inner in parts.iter().filter_map(Value::as_object) {
        walk(inner, depth + 1, found);
    }
}

/// Words as one command line.
fn argv(words: &[&str]) -> String {
    // `bash -lc TEXT` is its text.
    if let [shell, flag, text] = words
        && shell.ends_with("sh")
        && flag.starts_with('-')
        && flag.ends_with('c')
    {
        return (*text).to_owned();
    }
    let quoted = words.iter().map(|word| {
        let plain = !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./=:@,+%".contains(c));
        if plain {
            (*word).to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A free-form tool: a patch runs nothing, JavaScript names its commands in string literals, and
/// everything else is a command itself.
fn free(name: &str, text: &str, found: &mut Vec<String>) {
    if text.trim_start().starts_with("*** Begin Patch") {
        return;
    }
    if text.contains("tools.") || name.ends_with("exec") || name.ends_with("js") {
        // Every literal may be the command, or be put together with others to make one.
        let literals = literals(text);
        if literals.len() > 1 {
            found.push(literals.concat());
        }
        found.extend(literals);
        return;
    }
    if !text.trim().is_empty() {
        found.push(text.to_owned());
    }
}

/// The string literals of JavaScript, with their escapes undone.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if !matches!(c, '"' | '\'' | '`') {
            continue;
        }
        let mut literal = String::new();
        while let Some(next) = chars.next() {
            if next == c {
                break;
            }
            if next != '\\' {
                literal.push(next);
                continue;
            }
            match chars.next() {
                Some('n') => literal.push('\n'),
                Some('t') => literal.push('\t'),
                Some('r') => literal.push('\r'),
                Some(kind @ ('u' | 'x')) => {
                    let digits = if kind == 'u' { 4 } else { 2 };
                    let code: String = chars.by_ref().take(digits).collect();
                    let code = u32::from_str_radix(&code, 16).ok();
                    literal.push(code.and_then(char::from_u32).unwrap_or('\u{fffd}'));
                }
                Some('\n') | None => {}
                Some(other) => literal.push(other),
            }
        }
        if !literal.trim().is_empty() {
            found.push(literal);
        }
    }
    found
}

/// The files of a patch as agents write them (`*** Add File: P`, `+++ b/P`), with the lines added.
fn patch(text: &str) -> Vec<Written> {
    let mut files: Vec<Written> = Vec::new();
    for line in text.lines() {
        let named = ["*** Add File: ", "*** Update File: ", "+++ b/"]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        if let Some(path) = named {
            files.push(Written {
                path: path.trim().to_owned(),
                content: String::new(),
            });
        } else if let (Some(added), Some(file)) = (line.strip_prefix('+'), files.last_mut()) {
            file.content.push_str(added);
            file.content.push('\n');
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_known_tools() {
        let check = |name: &str, arguments: &str, expect: &[&str]| {
            assert_eq!(commands(name, arguments), expect, "{name} {arguments}");
        };
        check("bash", r#"{"command":"ls -l","timeout":3}"#, &["ls -l"]);
        check(
            "shell",
            r#"{"command":["bash","-lc","curl a | sh"]}"#,
            &["curl a | sh"],
        );
        check(
            "shell",
            r#"{"command":["curl","-d","a b"]}"#,
            &["curl -d 'a b'"],
        );
        check("run_commands", r#"{"commands":["a","b"]}"#, &["a", "b"]);
        check("local_shell", r#"{"action":{"cmd":"id"}}"#, &["id"]);
        check(
            "exec",
            r#"const r = await tools.exec_command({cmd: "cat \"x\""}); text(r.output ?? r);"#,
            &["cat \"x\""],
        );
        check(
            "exec",
            "tools.exec_command({cmd: 'cu' + 'rl x'})",
            &["curl x", "cu", "rl x"],
        );
        check("apply_patch", "*** Begin Patch\n*** End Patch", &[]);
        check("read", r#"{"path":"a"}"#, &[]);
    }

    #[test]
    fn files_written() {
        let one = |path: &str, content: &str| Written {
            path: path.into(),
            content: content.into(),
        };
        assert_eq!(
            written(r#"{"path":"a.sh","content":"x"}"#),
            [one("a.sh", "x")]
        );
        assert_eq!(
            written("*** Begin Patch\n*** Add File: r.txt\n+port\n*** End Patch\n"),
            [one("r.txt", "port\n")]
        );
        assert_eq!(written(r#"{"command":"x"}"#), []);
        assert_eq!(
            paths(r#"{"file_path":"a","files":[{"path":"b"}],"n":1}"#),
            ["a", "b"]
        );
    }
}
