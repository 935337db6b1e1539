//! What leaves the machine by a command, told by what the command can do and not by its name alone:
//! eight ways out, whatever wraps the program that takes one.

use std::collections::{BTreeMap, BTreeSet};

use crate::secrets::{is_sensitive, longest_blob, paths_in};
use crate::shell::{self, Flow, Run};
use crate::wrap;

/// A way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Web requests, downloads, package installation, version control over the web.
    Http,
    /// Look-ups, also as a carrier.
    Dns,
    /// Remote shells and copies.
    Ssh,
    /// Electronic mail.
    Mail,
    /// Connections of any protocol.
    RawSocket,
    /// A cloud's own command line.
    CloudCli,
    /// Publishing packages and images.
    PackagePublish,
    /// Code of a general language that uses the network.
    Interpreter,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Http,
        Self::Dns,
        Self::Ssh,
        Self::Mail,
        Self::RawSocket,
        Self::CloudCli,
        Self::PackagePublish,
        Self::Interpreter,
    ];

    /// Its name in findings and reflections.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Dns => "dns",
            Self::Ssh => "ssh",
            Self::Mail => "mail",
            Self::RawSocket => "raw-socket",
            Self::CloudCli => "cloud-cli",
            Self::PackagePublish => "package-publish",
            Self::Interpreter => "interpreter",
        }
    }
}

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
        recipe(run, known, effects, files, depth);
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
fn recipe(
    run: &Run,
    known: &Known,
    effects: &mut Effects,
    files: &mut BTreeSet<String>,
    depth: usize,
) {
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
    let _ = run;
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

/// Where a command that copies puts its copy.
fn copied_to(program: &str, run: &Run) -> Vec<String> {
    let words: Vec<&str> = run
        .arguments()
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    let plain = || words.iter().filter(|word| !word.starts_with('-')).copied();
    let after = |flags: &[&str]| {
        let pairs = words.iter().zip(words.iter().skip(1));
        pairs
            .filter(|(flag, _)| flags.contains(*flag))
            .map(|(_, value)| (*value).to_owned())
            .collect::<Vec<_>>()
    };
    match program {
        "cp" | "mv" | "ln" | "install" | "rsync" => {
            plain().next_back().map(str::to_owned).into_iter().collect()
        }
        "tee" | "sponge" => plain().map(str::to_owned).collect(),
        "tar" | "bsdtar" => {
            let mut found = after(&["-f", "--file"]);
            let bundled = words.iter().zip(words.iter().skip(1)).filter(|(flag, _)| {
                let flag = flag.trim_start_matches('-');
                flag.ends_with('f') && flag.contains('c')
            });
            found.extend(bundled.map(|(_, file)| (*file).to_owned()));
            found
        }
        "zip" | "7z" | "7za" | "rar" => plain()
            .find(|word| !matches!(*word, "a" | "u"))
            .map(str::to_owned)
            .into_iter()
            .collect(),
        "gzip" | "bzip2" | "xz" | "zstd" | "lz4" => {
            let ending = match program {
                "gzip" => "gz",
                "bzip2" => "bz2",
                "xz" => "xz",
                "zstd" => "zst",
                _ => "lz4",
            };
            plain().map(|file| format!("{file}.{ending}")).collect()
        }
        "dd" => words
            .iter()
            .filter_map(|word| word.strip_prefix("of="))
            .map(str::to_owned)
            .collect(),
        "split" => plain().nth(1).map(str::to_owned).into_iter().collect(),
        "openssl" => after(&["-out"]),
        "gpg" | "age" | "curl" | "wget" | "sort" | "pandoc" | "xxd" => {
            after(&["-o", "--output", "-O"])
        }
        _ => Vec::new(),
    }
}

fn destroys(program: &str, run: &Run) -> bool {
    let has = |flag: &str| run.arguments().iter().any(|word| word.text == flag);
    let letters = |letter: char| {
        run.arguments().iter().any(|word| {
            word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains(letter)
        })
    };
    match program {
        "rm" => letters('r') || letters('R') || has("--recursive"),
        "shred" | "wipefs" | "mkfs" => true,
        "git" => {
            has("push") && (has("--force") || has("-f") || has("--mirror") || has("--delete"))
                || has("filter-branch")
                || has("reset") && has("--hard")
                || has("clean") && letters('f')
        }
        "find" => has("-delete"),
        "dd" => run
            .arguments()
            .iter()
            .any(|word| word.text.starts_with("of=/dev/")),
        "dropdb" => true,
        _ => program.starts_with("mkfs."),
    }
}

/// The way out that a program takes, and whether it is made to send.
fn way_out(program: &str, run: &Run) -> Option<(Channel, bool)> {
    let words: Vec<&str> = run
        .arguments()
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    let has = |any: &[&str]| words.iter().any(|word| any.contains(word));
    let starts = |any: &[&str]| {
        words
            .iter()
            .any(|word| any.iter().any(|start| word.starts_with(start)))
    };
    let verb = words
        .iter()
        .find(|word| !word.starts_with('-'))
        .copied()
        .unwrap_or_default();
    Some(match program {
        "curl" | "curlie" | "http" | "https" | "xh" | "xhs" | "httpie" => {
            let body = starts(&[
                "-d",
                "--data",
                "-F",
                "--form",
                "-T",
                "--upload-file",
                "--json",
                "--url-query",
            ]) || has(&["POST", "PUT", "PATCH"])
                || starts(&["-XPOST", "-XPUT", "-XPATCH"])
                || (program != "curl"
                    && words
                        .iter()
                        .any(|word| word.contains('=') || word.contains('@')));
            (Channel::Http, body)
        }
        "wget" | "wget2" => (Channel::Http, starts(&["--post-", "--body-", "--method"])),
        "aria2c" | "lynx" | "links" | "elinks" | "w3m" | "axel" | "httrack" | "youtube-dl"
        | "yt-dlp" | "lftp" | "ftp" | "tftp" | "chromium" | "chrome" | "google-chrome"
        | "firefox" | "playwright" | "ab" | "wrk" | "hey" | "siege" | "grpcurl" | "websocat"
        | "wscat" => (
            Channel::Http,
            matches!(
                program,
                "grpcurl" | "websocat" | "wscat" | "ftp" | "lftp" | "tftp"
            ),
        ),
        "git" | "hub" | "hg" | "svn" => {
            let remote = matches!(
                verb,
                "push"
                    | "fetch"
                    | "pull"
                    | "clone"
                    | "ls-remote"
                    | "send-email"
                    | "submodule"
                    | "remote"
                    | "archive"
                    | "svn"
                    | "commit-tree"
                    | "checkout"
                    | "update"
            );
            let talks = matches!(
                verb,
                "push" | "fetch" | "pull" | "clone" | "ls-remote" | "send-email"
            ) || (verb == "submodule" && has(&["update", "add"]))
                || (verb == "remote" && has(&["update", "show"]))
                || (program != "git" && remote);
            if !talks {
                return None;
            }
            let over_ssh = words.iter().any(|word| {
                word.starts_with("ssh:")
                    || (word.contains('@') && word.contains(':') && !word.contains("://"))
            });
            let channel = match verb {
                "send-email" => Channel::Mail,
                _ if over_ssh => Channel::Ssh,
                _ => Channel::Http,
            };
            (channel, matches!(verb, "push" | "send-email"))
        }
        "gh" | "glab" | "tea" => (
            Channel::Http,
            has(&[
                "create", "upload", "comment", "edit", "set", "api", "--body", "push",
            ]),
        ),
        "npm" | "pnpm" | "yarn" | "bun" => match verb {
            "publish" => (Channel::PackagePublish, true),
            "install" | "i" | "ci" | "add" | "update" | "upgrade" | "exec" | "x" | "dlx"
            | "create" | "audit" | "view" | "info" | "outdated" | "search" | "login" | "ping" => {
                (Channel::Http, false)
            }
            _ => return None,
        },
        "npx" | "bunx" | "pnpx" | "uvx" | "pipx" => (Channel::Http, false),
        "pip" | "pip3" | "poetry" | "uv" | "conda" | "mamba" | "hatch" | "flit" | "pdm" => {
            match verb {
                "publish" => (Channel::PackagePublish, true),
                "install" | "download" | "add" | "sync" | "lock" | "update" | "create"
                | "search" | "index" | "pip" => (Channel::Http, false),
                _ => return None,
            }
        }
        "cargo" => match verb {
            "publish" | "owner" | "yank" => (Channel::PackagePublish, true),
            "install" | "add" | "search" | "update" | "fetch" | "info" | "login" => {
                (Channel::Http, false)
            }
            _ => return None,
        },
        "gem" => match verb {
            "push" => (Channel::PackagePublish, true),
            "install" | "fetch" | "update" | "search" => (Channel::Http, false),
            _ => return None,
        },
        "go" => match verb {
            "get" | "install" | "mod" => (Channel::Http, false),
            _ => return None,
        },
        "twine" | "chart-releaser" | "vsce" | "ovsx" | "goreleaser" | "semantic-release"
        | "lerna" => (Channel::PackagePublish, true),
        "mvn" | "gradle" | "dotnet" | "nuget" | "sbt" | "mix" | "rebar3" | "composer"
        | "bundle" | "brew" | "apt" | "apt-get" | "yum" | "dnf" | "apk" | "pacman" | "zypper"
        | "snap" | "flatpak" | "nix" => {
            let publishes = has(&["deploy", "publish", "push", "hex.publish", "nuget"])
                && !has(&["install", "update"]);
            if publishes {
                (Channel::PackagePublish, true)
            } else if has(&[
                "install", "update", "upgrade", "add", "restore", "require", "fetch", "get",
                "deps.get", "-S", "-Syu", "build",
            ]) {
                (Channel::Http, false)
            } else {
                return None;
            }
        }
        "docker" | "podman" | "nerdctl" | "buildah" | "skopeo" | "crane" | "oras" | "helm" => {
            match verb {
                "push" | "copy" | "login" | "append" => (Channel::PackagePublish, verb != "login"),
                "pull" | "build" | "run" | "search" | "install" | "repo" => (Channel::Http, false),
                _ => return None,
            }
        }
        "dig" | "nslookup" | "host" | "drill" | "kdig" | "delv" | "resolvectl"
        | "systemd-resolve" | "getent" | "ping" | "ping6" | "traceroute" | "tracepath" | "mtr"
        | "whois" | "dog" | "q" | "fping" | "arping" | "avahi-resolve" => {
            if program == "getent" && !has(&["hosts", "ahosts", "ahostsv4", "ahostsv6"]) {
                return None;
            }
            (Channel::Dns, true)
        }
        "ssh" | "scp" | "sftp" | "autossh" | "sshpass" | "ssh-copy-id" | "mosh" | "dbclient"
        | "dropbear" | "plink" | "pscp" | "rsh" | "rlogin" | "rcp" => (Channel::Ssh, true),
        "rsync" | "unison" | "rclone" | "restic" | "borg" | "duplicity" | "syncthing" => {
            let remote = words
                .iter()
                .any(|word| word.contains(':') || word.contains("::"));
            if program == "rsync" && !remote {
                return None;
            }
            (
                if program == "rclone" {
                    Channel::CloudCli
                } else {
                    Channel::Ssh
                },
                true,
            )
        }
        "mail" | "mailx" | "sendmail" | "mutt" | "neomutt" | "swaks" | "msmtp" | "ssmtp"
        | "s-nail" | "mpack" | "exim" | "postfix" | "sendemail" | "email" => (Channel::Mail, true),
        "nc" | "ncat" | "netcat" | "socat" | "telnet" | "nmap" | "cryptcat" | "openssl"
        | "pwncat" | "hping3" | "masscan" | "nping" | "zmap" | "rustscan" | "chisel" | "frpc"
        | "ngrok" | "cloudflared" | "bore" | "localtunnel" | "lt" | "tailscale" | "wg"
        | "openvpn" | "tor" | "mosquitto_pub" | "mosquitto_sub" | "amqp-publish" | "kcat"
        | "kafkacat" | "logger" | "redis-cli" | "psql" | "mysql" | "mongosh" => {
            if program == "openssl" && verb != "s_client" {
                return None;
            }
            let database = matches!(program, "redis-cli" | "psql" | "mysql" | "mongosh");
            let elsewhere = starts(&["-h", "--host", "postgres", "mysql:", "mongodb", "redis:"]);
            if database && !elsewhere || program == "logger" && !starts(&["-n", "--server"]) {
                return None;
            }
            (Channel::RawSocket, true)
        }
        "aws" | "gcloud" | "gsutil" | "bq" | "az" | "azcopy" | "doctl" | "heroku" | "flyctl"
        | "fly" | "vercel" | "netlify" | "wrangler" | "s3cmd" | "s5cmd" | "mc" | "b2" | "oci"
        | "ibmcloud" | "linode-cli" | "firebase" | "supabase" | "railway" | "render"
        | "kubectl" | "oc" | "terraform" | "tofu" | "pulumi" | "ansible" | "ansible-playbook"
        | "eksctl" | "serverless" | "sls" | "cdk" | "sam" | "surge" | "now" | "stripe"
        | "twilio" | "vault" | "op" | "bw" => (
            Channel::CloudCli,
            !has(&["--help", "--version", "help", "version"]),
        ),
        _ => return None,
    })
}

fn is_known_way_out(name: &str) -> bool {
    let run = Run {
        words: [name, "push", "install"].map(Flow::literal).to_vec(),
        ..Run::default()
    };
    !name.is_empty() && !name.contains(' ') && way_out(&name.to_ascii_lowercase(), &run).is_some()
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

/// The hosts that a command goes to.
fn hosts(program: &str, channel: Channel, run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for word in run.arguments() {
        found.extend(addresses(&word.text));
    }
    let plain: Vec<&str> = run
        .arguments()
        .iter()
        .map(|word| word.text.as_str())
        .filter(|word| !word.starts_with('-') && !word.is_empty())
        .collect();
    match channel {
        Channel::Http
            if found.is_empty()
                && matches!(program, "curl" | "wget" | "http" | "xh" | "ab" | "grpcurl") =>
        {
            // `curl example.org/x`
            found.extend(
                plain
                    .iter()
                    .filter_map(|word| host_of(word.split('/').next()?)),
            );
        }
        Channel::Ssh | Channel::Http if found.is_empty() => {
            for word in &plain {
                let Some((before, _)) = word.split_once(':') else {
                    continue;
                };
                let host = before.rsplit('@').next().unwrap_or(before);
                found.extend(host_of(host));
            }
            if found.is_empty() && channel == Channel::Ssh {
                found.extend(
                    plain
                        .iter()
                        .filter_map(|word| host_of(word.rsplit('@').next()?)),
                );
            }
        }
        Channel::Dns | Channel::RawSocket if found.is_empty() => {
            for word in &plain {
                let word = word.trim_start_matches('@');
                // `socat - TCP:host:port`
                let parts = word.split([':', ',', '/']);
                found.extend(parts.filter_map(host_of));
            }
        }
        Channel::Mail => {
            for word in &plain {
                if let Some((_, domain)) = word.split_once('@') {
                    found.extend(host_of(domain.trim_end_matches('>')));
                }
            }
        }
        Channel::CloudCli | Channel::PackagePublish if found.is_empty() => {
            found.extend(
                plain
                    .iter()
                    .filter_map(|word| host_of(word.split('/').next()?)),
            );
        }
        _ => {}
    }
    found.sort();
    found.dedup();
    found
}

/// Hosts of the addresses in a text.
pub fn addresses(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let rest = text.get(at + 3..).unwrap_or_default();
        let end = rest
            .find(|c: char| {
                matches!(
                    c,
                    '/' | '?' | '#' | '"' | '\'' | '`' | ')' | '>' | '<' | ',' | ';' | '\\'
                ) || c.is_whitespace()
            })
            .unwrap_or(rest.len());
        let authority = rest.get(..end).unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let host = if host.starts_with('[') {
            host.split(']')
                .next()
                .unwrap_or_default()
                .trim_start_matches('[')
        } else {
            host.split(':').next().unwrap_or_default()
        };
        if let Some(host) = host_of(host)
            .or_else(|| (host == "localhost" || host.contains(':')).then(|| host.to_owned()))
        {
            found.push(host);
        }
    }
    found
}

/// A name with a dot in it, or an address.
fn host_of(text: &str) -> Option<String> {
    let text = text.trim_end_matches('.').to_ascii_lowercase();
    let labels: Vec<&str> = text.split('.').collect();
    let fits = labels.len() >= 2
        && text.len() <= 253
        && labels.iter().all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        });
    let last = labels.last().copied().unwrap_or_default();
    let numeric = text.parse::<std::net::Ipv4Addr>().is_ok();
    let named = last.chars().all(|c| c.is_ascii_alphabetic()) && last.len() >= 2
        || last.starts_with("xn--");
    // `main.rs` is no host.
    let file = [
        "rs", "py", "js", "ts", "sh", "md", "txt", "json", "yml", "yaml", "toml", "gz", "zip",
        "tar", "html", "css", "lock", "log", "env", "pem", "key",
    ];
    (fits && (numeric || named && !(labels.len() == 2 && file.contains(&last)))).then_some(text)
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
