//! What well-known programs do: the way out that one takes, where it copies to, what it destroys.

use crate::shell::{Flow, Run};

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

/// Where a command that copies puts its copy.
pub(crate) fn copied_to(program: &str, run: &Run) -> Vec<String> {
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

/// Whether it takes away what cannot be brought back.
pub(crate) fn destroys(program: &str, run: &Run) -> bool {
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
pub(crate) fn way_out(program: &str, run: &Run) -> Option<(Channel, bool)> {
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

/// Whether a word is the name of a program with a way out.
pub(crate) fn is_known_way_out(name: &str) -> bool {
    let run = Run {
        words: [name, "push", "install"].map(Flow::literal).to_vec(),
        ..Run::default()
    };
    !name.is_empty() && !name.contains(' ') && way_out(&name.to_ascii_lowercase(), &run).is_some()
}
