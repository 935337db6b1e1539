//! Commands that run other commands: `env`, `sudo`, `xargs`, `find -exec`, `sh -c`, `eval`, shells
//! that read their program from standard input, and interpreters with code on the command line.

use crate::shell::{Flow, Run};

/// Programs that are a shell.
const SHELLS: [&str; 9] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "mksh", "rbash",
];

/// Programs that run what follows their own options. The options in the second list take a value.
const WRAPPERS: [(&str, &[&str]); 36] = [
    ("env", &["-u", "--unset", "-C", "--chdir", "-S"]),
    (
        "sudo",
        &[
            "-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R", "-T", "--user", "--group",
        ],
    ),
    ("doas", &["-u", "-C"]),
    ("nohup", &[]),
    ("nice", &["-n", "--adjustment"]),
    ("ionice", &["-c", "-n", "-p"]),
    ("time", &["-f", "-o"]),
    ("timeout", &["-k", "-s", "--kill-after", "--signal"]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("setsid", &[]),
    (
        "xargs",
        &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-a",
            "-s",
            "-E",
            "--max-args",
            "--max-procs",
        ],
    ),
    ("parallel", &["-j", "--jobs"]),
    ("command", &[]),
    ("builtin", &[]),
    ("exec", &["-a"]),
    ("watch", &["-n", "--interval"]),
    ("flock", &["-w", "-E"]),
    ("chroot", &["--userspec"]),
    ("unshare", &[]),
    ("nsenter", &["-t"]),
    ("strace", &["-o", "-e", "-p"]),
    ("ltrace", &["-o", "-e"]),
    ("busybox", &[]),
    ("toybox", &[]),
    ("proxychains", &["-f"]),
    ("proxychains4", &["-f"]),
    ("torsocks", &[]),
    ("torify", &[]),
    ("chronic", &[]),
    ("unbuffer", &[]),
    ("ifne", &[]),
    ("systemd-run", &["-p", "--unit"]),
    ("runuser", &["-u"]),
    ("uv", &[]),
    ("then", &[]),
    ("!", &[]),
];

/// The words of the commands that a command wraps.
pub(crate) fn unwrapped(run: &Run) -> Vec<Vec<Flow>> {
    let program = run.program();
    let mut found = Vec::new();
    if let Some((_, valued)) = WRAPPERS.iter().find(|(name, _)| *name == program)
        && let Some(words) = inner(&program, run.arguments(), valued)
    {
        let mut words = words.to_vec();
        if matches!(program.as_str(), "xargs" | "parallel") {
            // What it reads becomes arguments.
            let mut read = Flow {
                open: true,
                ..run.input.clone()
            };
            read.files.extend(argument_file(run.arguments()));
            words.push(read);
        }
        found.push(words);
    }
    if program == "find" || program == "fd" {
        let words = run.arguments();
        let starts = words.iter().enumerate().filter(|(_, word)| {
            matches!(
                word.text.as_str(),
                "-exec" | "-execdir" | "-ok" | "-x" | "-X"
            )
        });
        for (at, _) in starts {
            let rest = words.get(at + 1..).unwrap_or_default();
            let end = rest
                .iter()
                .position(|word| matches!(word.text.as_str(), ";" | "+" | "\\;"))
                .unwrap_or(rest.len());
            let mut inner: Vec<Flow> = rest.get(..end).unwrap_or_default().to_vec();
            // `{}` is what it found: everything below where it looks.
            let names: Vec<&Flow> = words
                .iter()
                .zip(words.iter().skip(1))
                .filter(|(flag, _)| matches!(flag.text.as_str(), "-name" | "-path" | "-iname"))
                .map(|(_, name)| name)
                .collect();
            for name in names {
                inner.push(name.clone());
            }
            if !inner.is_empty() {
                found.push(inner);
            }
        }
    }
    found
}

/// Programs in text that a command runs: the argument of `sh -c`, of `eval`, of `su -c`, what a
/// shell reads, and what is sent to another machine to be run there.
pub(crate) fn scripts(run: &Run) -> Vec<String> {
    let program = run.program();
    let words = run.arguments();
    let mut found = Vec::new();
    let is_shell = SHELLS.contains(&program.as_str());
    if is_shell
        || matches!(
            program.as_str(),
            "su" | "script" | "runuser" | "flock" | "parallel"
        )
    {
        let mut after = words.iter().skip_while(|word| {
            !(word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c'))
        });
        if after.next().is_some()
            && let Some(text) = after.next()
        {
            found.push(text.text.clone());
        } else if is_shell && !run.input.text.trim().is_empty() {
            found.push(run.input.text.clone());
        }
    }
    if program == "eval" {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        found.push(texts.join(" "));
    }
    if matches!(program.as_str(), "." | "source") && words.iter().any(|w| w.text == "/dev/stdin") {
        found.push(run.input.text.clone());
    }
    if program == "env" {
        // `env -S 'PROGRAM ARGUMENTS'`
        let mut after = words.iter().skip_while(|word| word.text != "-S");
        if after.next().is_some()
            && let Some(text) = after.next()
        {
            found.push(text.text.clone());
        }
    }
    if program == "trap"
        && let Some(text) = words.first()
    {
        found.push(text.text.clone());
    }
    if matches!(program.as_str(), "at" | "batch" | "crontab") && !run.input.text.is_empty() {
        found.push(run.input.text.clone());
    }
    found.retain(|text| !text.trim().is_empty());
    found
}

/// The file that a command runs as a program: `bash FILE`, `python FILE`, `./FILE`, `. FILE`.
pub(crate) fn script_file(run: &Run) -> Option<String> {
    let program = run.program();
    if is_interpreter(&program)
        || SHELLS.contains(&program.as_str())
        || matches!(program.as_str(), "." | "source")
    {
        let file = run
            .arguments()
            .iter()
            .find(|word| !word.text.starts_with('-'));
        return file.map(|word| word.text.clone());
    }
    let whole = run.words.first()?;
    (whole.text.contains('/')).then(|| whole.text.clone())
}

/// Whether a program is a shell.
pub(crate) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program) || matches!(program, "." | "source")
}

/// Whether a program runs code of a general language.
pub(crate) fn is_interpreter(program: &str) -> bool {
    let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        bare,
        "python"
            | "pypy"
            | "node"
            | "nodejs"
            | "deno"
            | "bun"
            | "perl"
            | "ruby"
            | "php"
            | "lua"
            | "luajit"
            | "Rscript"
            | "rscript"
            | "julia"
            | "tclsh"
            | "expect"
            | "groovy"
            | "jshell"
            | "ipython"
            | "tsx"
            | "ts-node"
            | "osascript"
            | "pwsh"
            | "powershell"
            | "awk"
            | "gawk"
            | "mawk"
            | "guile"
            | "racket"
            | "elixir"
            | "erl"
            | "emacs"
            | "vim"
            | "nvim"
    )
}

/// The code that an interpreter gets on its command line or its input.
pub(crate) fn code(run: &Run) -> String {
    let program = run.program();
    let mut code = String::new();
    let awk = program.ends_with("awk");
    let mut words = run.arguments().iter();
    while let Some(word) = words.next() {
        let flag = word.text.as_str();
        let takes = matches!(
            flag,
            "-c" | "-e"
                | "-r"
                | "-p"
                | "-pe"
                | "-ne"
                | "-E"
                | "--eval"
                | "--print"
                | "eval"
                | "-Command"
                | "-EncodedCommand"
                | "--expr"
        ) || (flag.starts_with('-')
            && !flag.starts_with("--")
            && flag.len() <= 5
            && flag.ends_with(['e', 'c']));
        if takes && let Some(text) = words.next() {
            code.push_str(&text.text);
            code.push('\n');
        } else if awk && !flag.starts_with('-') {
            code.push_str(flag);
            code.push('\n');
        }
    }
    code.push_str(&run.input.text);
    code
}

/// The file that `xargs -a FILE` reads.
fn argument_file(words: &[Flow]) -> Option<String> {
    let named = words
        .iter()
        .find_map(|word| word.text.strip_prefix("--arg-file="));
    let after = words.iter().skip_while(|word| word.text != "-a").nth(1);
    named
        .map(str::to_owned)
        .or_else(|| after.map(|word| word.text.clone()))
}

/// What follows a wrapper's own options, assignments and, for some, its first operand.
fn inner<'a>(program: &str, words: &'a [Flow], valued: &[&str]) -> Option<&'a [Flow]> {
    let operands = match program {
        "timeout" | "flock" | "chroot" => 1,
        _ => 0,
    };
    let mut skipped = 0;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        let assignment = program == "env" || program == "sudo";
        let names = text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        if valued.contains(&text) {
            at += 2;
        } else if text.starts_with('-') && text.len() > 1
            || (assignment && names)
            || (program == "uv" && text == "run")
        {
            at += 1;
        } else if skipped < operands {
            skipped += 1;
            at += 1;
        } else {
            break;
        }
    }
    words.get(at..).filter(|rest| !rest.is_empty())
}
