//! What leaves the machine by a command, told by what the command can do and not by its name alone:
//! eight ways out, whatever wraps the program that takes one.

use std::collections::{BTreeMap, BTreeSet};

use crate::hosts::{addresses, hosts};
pub use crate::programs::Channel;
use crate::programs::{copied_to, destroys, is_known_way_out, way_out};
use crate::secrets::{is_sensitive, longest_blob, paths_in};
use crate::shell::{self, Flow, Run};
use crate::wrap;

/// One command that takes a way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Which.
    pub channel: Channel,
    /// The program.
    pub program: String,
    /// Host names that it goes to, as far as they are literal.
    pub hosts: Vec<String>,
    /// Whether it is made to send something, rather than to fetch.
    pub sends: bool,
    /// Sensitive files whose content it would carry.
    pub carries: BTreeSet<String>,
    /// All literal text that it would send, to be searched for secrets.
    pub text: String,
    /// The longest piece of it that looks encoded, in characters.
    pub blob: usize,
}

/// What one tool call's commands would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// What would leave.
    pub egress: Vec<Egress>,
    /// Sensitive files that would be read.
    pub reads: BTreeSet<String>,
    /// Files named anywhere.
    pub names: BTreeSet<String>,
    /// Files that would hold the content of sensitive ones: the file, and from which.
    pub copies: Vec<(String, BTreeSet<String>)>,
    /// Whether it would remove what cannot be made again.
    pub destroys: bool,
    /// Names of the programs.
    pub programs: Vec<String>,
}

/// What is known from before: files the agent wrote, files that hold copies, names of the policy.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Content of files that tool calls wrote.
    pub written: BTreeMap<String, String>,
    /// Files that hold the content of sensitive ones.
    pub copies: BTreeMap<String, BTreeSet<String>>,
    /// Further sensitive places.
    pub sensitive: Vec<String>,
}

/// Classifies a shell command.
pub fn classify(command: &str, known: &Known) -> Effects {
    let mut effects = Effects::default();
    let line = shell::read(command);
    let mut files = BTreeSet::new();
    for run in &line.runs {
        run_effects(run, known, &mut effects, &mut files, 0);
    }
    // Copies made in this very line count for what follows in it: once more with them.
    if !effects.copies.is_empty() {
        let mut more = known.clone();
        more.copies.extend(effects.copies.iter().cloned());
        let mut again = Effects::default();
        for run in &line.runs {
            run_effects(run, &more, &mut again, &mut files, 0);
        }
        effects = again;
    }
    effects
}

/// What a file holds of sensitive ones, by its name.
fn origin(path: &str, known: &Known) -> BTreeSet<String> {
    let bare = path.trim_start_matches("./");
    if let Some(from) = known.copies.get(bare).or_else(|| known.copies.get(path)) {
        return from.clone();
    }
    let name = bare.rsplit('/').next().unwrap_or(bare);
    // A folder that is packed holds what is in it.
    if is_sensitive(path, &known.sensitive) {
        return BTreeSet::from([bare.to_owned()]);
    }
    known
        .copies
        .iter()
        .find(|(copy, _)| {
            copy.rsplit('/').next() == Some(name) && !name.is_empty() && path.contains('/')
        })
        .map(|(_, from)| from.clone())
        .unwrap_or_default()
}

fn run_effects(
    run: &Run,
    known: &Known,
    effects: &mut Effects,
    files: &mut BTreeSet<String>,
    depth: usize,
) {
    let program = run.program();
    effects.programs.push(program.clone());
    let speaks = matches!(program.as_str(), "echo" | "printf" | ":" | "true");
    let mut carried: BTreeSet<String> = BTreeSet::new();
    let mut flows: Vec<&Flow> = vec![&run.input];
    flows.extend(run.arguments());
    flows.extend(run.environment.iter().map(|(_, flow)| flow));
    for flow in &flows {
        for file in &flow.files {
            effects.names.insert(file.clone());
            carried.extend(origin(file, known));
        }
    }
    if !speaks {
        for word in run.arguments() {
            for path in paths_in(&word.text) {
                carried.extend(origin(&path, known));
                effects.names.insert(path);
            }
        }
    }
    effects.reads.extend(carried.iter().cloned());

    // Where its output, or the copy it makes, holds what it read.
    if !carried.is_empty() {
        let mut copies: Vec<String> = run.writes.clone();
        copies.extend(copied_to(&program, run));
        for copy in copies {
            if !copy.is_empty()
                && copy != "/dev/null"
                && !copy.starts_with("/dev/std")
                && !is_sensitive(&copy, &known.sensitive)
            {
                effects
                    .copies
                    .push((copy.trim_start_matches("./").to_owned(), carried.clone()));
            }
        }
    }
    effects.destroys |= destroys(&program, run);

    let mut add = |channel: Channel,
                   hosts: Vec<String>,
                   sends: bool,
                   carries: BTreeSet<String>,
                   text: String| {
        effects.egress.push(Egress {
            channel,
            program: program.clone(),
            hosts,
            sends,
            carries,
            blob: longest_blob(&text),
            text,
        });
    };
    let text = all_text(run);
    if let Some((channel, sends)) = way_out(&program, run) {
        add(
            channel,
            hosts(&program, channel, run),
            sends,
            carried.clone(),
            text.clone(),
        );
    }
    for target in run.writes.iter().chain(run.input.files.iter()) {
        if let Some(rest) = target
            .strip_prefix("/dev/tcp/")
            .or_else(|| target.strip_prefix("/dev/udp/"))
        {
            let host = rest.split('/').next().unwrap_or_default().to_owned();
            add(
                Channel::RawSocket,
                vec![host],
                true,
                carried.clone(),
                text.clone(),
            );
        }
    }
    if depth > 4 {
        return;
    }
    if wrap::is_interpreter(&program) {
        let mut code = wrap::code(run);
        if let Some(file) = wrap::script_file(run)
            && let Some(content) = content(&file, known)
        {
            code.push_str(content);
        }
        interpret(&program, &code, run, known, &carried, effects, files, depth);
        return;
    }
    // A script that the agent wrote is what it says.
    if let Some(file) = wrap::script_file(run)
        && let Some(content) = content(&file, known)
        && files.insert(file.clone())
    {
        let first = content.lines().next().unwrap_or_default();
        let interpreter = first.strip_prefix("#!").map(|line| {
            let mut words = line
                .split_whitespace()
                .map(|word| word.rsplit('/').next().unwrap_or(word));
            let name = words.next().unwrap_or_default();
            if name == "env" {
                words.next().unwrap_or_default().to_owned()
            } else {
                name.to_owned()
            }
        });
        match interpreter {
            Some(name) if wrap::is_interpreter(&name) => {
                let content = content.to_owned();
                interpret(&name, &content, run, known, &carried, effects, files, depth);
            }
            _ if wrap::is_shell(&program) || interpreter.is_some() || file.ends_with(".sh") => {
                let line = shell::read(content);
                for inner in &line.runs {
                    run_effects(inner, known, effects, files, depth + 1);
                }
            }
            _ => {}
        }
        files.remove(&file);
    }
    if matches!(program.as_str(), "make" | "just" | "npm" | "pnpm" | "yarn") {
        recipe(known, effects, files, depth);
    }
}

/// Code of a general language: marks of network use, addresses, sensitive files, and commands in its
/// string literals.
#[expect(
    clippy::too_many_arguments,
    reason = "what a command and its line know, handed down one level"
)]
fn interpret(
    program: &str,
    code: &str,
    run: &Run,
    known: &Known,
    carried: &BTreeSet<String>,
    effects: &mut Effects,
    files: &mut BTreeSet<String>,
    depth: usize,
) {
    const MARKS: [&str; 44] = [
        "requests.",
        "urllib",
        "http.client",
        "httpx",
        "aiohttp",
        "socket",
        "fetch(",
        "axios",
        "XMLHttpRequest",
        "http.request",
        "https.request",
        "http.get",
        "https.get",
        "net.connect",
        "net.createConnection",
        "dgram",
        "Net::HTTP",
        "LWP",
        "HTTP::Tiny",
        "IO::Socket",
        "curl_init",
        "curl_exec",
        "fsockopen",
        "stream_socket_client",
        "file_get_contents('http",
        "file_get_contents(\"http",
        "smtplib",
        "sendmail",
        "dns.resolve",
        "getaddrinfo",
        "gethostbyname",
        "ftplib",
        "telnetlib",
        "paramiko",
        "boto3",
        "/inet/tcp",
        "/inet/udp",
        "Invoke-WebRequest",
        "Invoke-RestMethod",
        "Net.WebClient",
        "WebSocket",
        "open-uri",
        "URI.open",
        "TCPSocket",
    ];
    let mut inside: BTreeSet<String> = carried.clone();
    for literal in literals(code) {
        for path in paths_in(&literal) {
            inside.extend(origin(&path, known));
        }
    }
    if code.contains("os.environ")
        || code.contains("process.env")
        || code.contains("%ENV")
        || code.contains("ENV.to_h")
    {
        // The environment as a whole, not one variable of it.
        let whole = [
            "os.environ)",
            "dict(os.environ",
            "process.env)",
            "process.env;",
            "%ENV",
            "ENV.to_h",
            "os.environ.items",
            "os.environ.copy",
        ];
        if whole.iter().any(|mark| code.contains(mark)) {
            inside.insert("the environment".to_owned());
        }
    }
    effects.reads.extend(inside.iter().cloned());
    let mut to = addresses(code);
    for word in run.arguments() {
        to.extend(addresses(&word.text));
    }
    to.dedup();
    let marked = MARKS.iter().any(|mark| code.contains(mark));
    // An address alone is enough when the code itself came on the command line.
    if marked || !to.is_empty() && !code.is_empty() {
        effects.egress.push(Egress {
            channel: Channel::Interpreter,
            program: program.to_owned(),
            hosts: to,
            sends: marked,
            carries: inside.clone(),
            blob: longest_blob(code),
            text: code.to_owned(),
        });
    } else if !inside.is_empty() {
        // What it writes may hold what it read.
        for literal in literals(code) {
            if literal.contains(['/', '.'])
                && !is_sensitive(&literal, &known.sensitive)
                && literal.len() < 200
                && !literal.contains(' ')
            {
                effects
                    .copies
                    .push((literal.trim_start_matches("./").to_owned(), inside.clone()));
            }
        }
    }
    if code.contains("rmtree") || code.contains("rmSync") || code.contains("unlink") {
        effects.destroys = true;
    }
    for literal in literals(code) {
        let first = literal.split_whitespace().next().unwrap_or_default();
        let name = first.rsplit('/').next().unwrap_or(first);
        if literal.contains(' ') && (is_known_way_out(name) || wrap::is_shell(name)) {
            for inner in &shell::read(&literal).runs {
                run_effects(inner, known, effects, files, depth + 1);
            }
        }
    }
    // `subprocess.run(["curl", "-d", …])`: the literals as one command.
    let all = literals(code);
    if let Some(at) = all.iter().position(|literal| is_known_way_out(literal)) {
        let words: Vec<Flow> = all.iter().skip(at).map(Flow::literal).collect();
        let inner = Run {
            words,
            input: Flow {
                files: inside,
                ..Flow::default()
            },
            ..Run::default()
        };
        run_effects(&inner, known, effects, files, depth + 1);
    }
}

/// A recipe that the agent wrote and then has run: a Makefile, scripts of a package.
fn recipe(known: &Known, effects: &mut Effects, files: &mut BTreeSet<String>, depth: usize) {
    for name in ["Makefile", "makefile", "justfile", "package.json"] {
        let Some(text) = content(name, known) else {
            continue;
        };
        if !files.insert(name.to_owned()) {
            continue;
        }
        let lines: Vec<String> = if name == "package.json" {
            literals(text)
        } else {
            text.lines()
                .filter(|line| line.starts_with(['\t', ' ']))
                .map(|line| line.trim().trim_start_matches(['@', '-']).to_owned())
                .collect()
        };
        for line in lines {
            for inner in &shell::read(&line).runs {
                run_effects(inner, known, effects, files, depth + 1);
            }
        }
        files.remove(name);
    }
}

fn content<'a>(file: &str, known: &'a Known) -> Option<&'a str> {
    let bare = file.trim_start_matches("./");
    known
        .written
        .iter()
        .find(|(path, _)| {
            path.trim_start_matches("./") == bare || path.ends_with(&format!("/{bare}"))
        })
        .map(|(_, content)| content.as_str())
}

/// Literal text of everything that a command gets.
fn all_text(run: &Run) -> String {
    let mut text = String::new();
    for word in run.arguments() {
        text.push_str(&word.text);
        text.push('\n');
    }
    text.push_str(&run.input.text);
    text
}

/// The string literals of most languages.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = code.chars();
    while let Some(c) = chars.next() {
        if !matches!(c, '"' | '\'' | '`') {
            continue;
        }
        let mut literal = String::new();
        let mut closed = false;
        while let Some(next) = chars.next() {
            if next == c {
                closed = true;
                break;
            }
            if next == '\\' {
                if let Some(escaped) = chars.next() {
                    literal.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    });
                }
                continue;
            }
            literal.push(next);
        }
        if closed && !literal.is_empty() && found.len() < 1000 {
            found.push(literal);
        }
    }
    found
}
