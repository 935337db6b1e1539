//! What is in force, in words and as data, for `kairos policy check`.

use std::fmt;

use kernel::policy::{Gate, PathRule, SourcePattern, Speculation};
use kernel::provenance::Form;
use kernel::{Kind, KindSet};
use serde::Serialize;

use crate::loaded::Loaded;
use crate::tool::gate_words;

/// What a policy says, for people ([`fmt::Display`]) and programs ([`Serialize`]).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file, or none for the built-in default.
    pub file: Option<String>,
    /// Digest of all it consists of.
    pub epoch: String,
    /// Who is trusted for what.
    pub sources: Vec<SourceReport>,
    /// Where sensitive content lies, by level.
    pub sensitive: Vec<LevelReport>,
    /// Who may be talked to, in the order in which they count.
    pub parties: Vec<PartyReport>,
    /// Tools that are named, in the order in which they count.
    pub tools: Vec<ToolReport>,
    /// Values of tools' answers that may steer named arguments.
    pub typed: Vec<TypedReport>,
    /// Forms of derivation that are turned off.
    pub derive_off: Vec<&'static str>,
    /// Variables whose values are put in at the boundary.
    pub credentials: Vec<CredentialReport>,
    /// Kinds of places that run later, with the number of patterns.
    pub executes: Vec<(String, usize)>,
    /// Names of rules that refuse.
    pub rules: Vec<String>,
    /// The agent's state trees.
    pub state: Vec<String>,
    /// How far effects may run ahead.
    pub speculation: String,
    /// Who decides, when the command line does not say.
    pub oracle: Option<String>,
    /// What an operator may not have meant.
    pub warnings: Vec<String>,
}

/// A source.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// Who or where.
    pub source: String,
    /// Trusted for these kinds.
    pub trusted: Vec<&'static str>,
}

/// A level of sensitive content.
#[derive(Clone, Debug, Serialize)]
pub struct LevelReport {
    /// The level.
    pub level: String,
    /// Patterns.
    pub patterns: Vec<String>,
}

/// A party.
#[derive(Clone, Debug, Serialize)]
pub struct PartyReport {
    /// Its name.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its ports; empty for any.
    pub ports: Vec<u16>,
    /// What is released without asking.
    pub allow: Vec<String>,
    /// Requests that are the internal channel to a model.
    pub internal: Vec<String>,
    /// The most it may get.
    pub clearance: String,
    /// Where it is really reached.
    pub upstream: Option<String>,
    /// What is said of connections to it.
    pub connection: Vec<String>,
}

/// A tool.
#[derive(Clone, Debug, Serialize)]
pub struct ToolReport {
    /// Its name, or a pattern.
    pub name: String,
    /// `read`, `fetch` or `act`.
    pub effect: &'static str,
    /// How a call is held.
    pub class: &'static str,
    /// What steers it.
    pub gate: Vec<String>,
    /// The most it may get.
    pub clearance: &'static str,
}

/// A typed release.
#[derive(Clone, Debug, Serialize)]
pub struct TypedReport {
    /// Its name.
    pub name: String,
    /// The tool whose answer it is.
    pub from: String,
    /// Which of its fields.
    pub field: String,
    /// Their kind.
    pub kind: &'static str,
    /// What it may steer.
    pub to: Vec<String>,
}

/// A credential.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialReport {
    /// The variable.
    pub env: String,
    /// Its hosts.
    pub hosts: Vec<String>,
}

impl Loaded {
    /// What is in force.
    pub fn report(&self) -> Report {
        let policy = &self.kernel;
        let sources = policy
            .sources
            .iter()
            .filter(|rule| !rule.trusted.is_empty());
        let mut levels: Vec<LevelReport> = Vec::new();
        for rule in &policy.sensitive {
            let level = rule.level.name().to_string();
            let pattern = described(&rule.of);
            match levels.iter_mut().find(|known| known.level == level) {
                Some(known) => known.patterns.push(pattern),
                None => levels.push(LevelReport {
                    level,
                    patterns: vec![pattern],
                }),
            }
        }
        levels.sort_by_key(|level| std::cmp::Reverse(kernel::Level::parse(&level.level)));
        let mut executes: Vec<(String, usize)> = Vec::new();
        for rule in &policy.executes {
            match executes.iter_mut().find(|(place, _)| *place == rule.place) {
                Some((_, n)) => *n += 1,
                None => executes.push((rule.place.clone(), 1)),
            }
        }
        Report {
            file: self.origin.as_ref().map(|path| path.display().to_string()),
            epoch: policy.epoch.hex(),
            sources: sources
                .map(|rule| SourceReport {
                    source: described(&rule.of),
                    trusted: kinds(rule.trusted),
                })
                .collect(),
            sensitive: levels,
            parties: policy
                .parties
                .iter()
                .map(|party| self.party_report(party))
                .collect(),
            tools: policy
                .tools
                .iter()
                .map(|tool| ToolReport {
                    name: tool.name.0.clone(),
                    effect: tool.effect.name(),
                    class: tool.class.name(),
                    gate: gate_words(&tool.gate),
                    clearance: tool.clearance.name(),
                })
                .collect(),
            typed: policy
                .typed
                .iter()
                .map(|rule| TypedReport {
                    name: rule.name.clone(),
                    from: rule.from.0.clone(),
                    field: rule.field.0.clone(),
                    kind: rule.kind.name(),
                    to: rule
                        .to
                        .iter()
                        .map(|to| format!("{}.{}", to.tool.0, to.argument.0))
                        .collect(),
                })
                .collect(),
            derive_off: Form::ALL
                .into_iter()
                .filter(|form| !policy.derive.contains(*form))
                .map(Form::name)
                .collect(),
            credentials: self
                .credentials
                .iter()
                .map(|credential| CredentialReport {
                    env: credential.env.clone(),
                    hosts: credential.hosts.iter().map(|host| host.0.clone()).collect(),
                })
                .collect(),
            executes,
            rules: self.rules.names().to_vec(),
            state: self
                .agent
                .state
                .iter()
                .map(|tree| tree.path.display().to_string())
                .collect(),
            speculation: match policy.speculation {
                Speculation::Conservative => "conservative",
                Speculation::Matched => "matched",
            }
            .to_string(),
            oracle: self.oracle.default.clone(),
            warnings: self.warnings(),
        }
    }

    /// The policy in a few lines, for an oracle.
    pub fn summary(&self) -> String {
        let report = self.report();
        let mut lines: Vec<String> = report
            .sources
            .iter()
            .map(|source| match source.trusted.len() {
                n if n == Kind::ALL.len() => format!("{} is trusted for everything", source.source),
                _ => format!(
                    "{} is trusted for {}",
                    source.source,
                    source.trusted.join(", ")
                ),
            })
            .collect();
        for party in report
            .parties
            .iter()
            .filter(|party| party.internal.is_empty())
        {
            lines.push(format!(
                "{} may be sent {} content: {}",
                shortened(&party.hosts, 4),
                party.clearance,
                party.allow.join(", ")
            ));
        }
        for rule in &report.rules {
            lines.push(format!(
                "rule `{rule}` was asked before and does not forbid what is held"
            ));
        }
        lines.join("\n")
    }

    fn party_report(&self, party: &kernel::Party) -> PartyReport {
        let mut allow: Vec<String> = match party.gate {
            Gate::Url => vec!["reading URLs from the task".to_string()],
            Gate::Host if party.methods.is_empty() => vec!["every request".to_string()],
            Gate::Host => party
                .methods
                .iter()
                .filter(|m| !m.is_empty())
                .cloned()
                .collect(),
        };
        if !party.paths.is_empty() {
            allow = vec![format!(
                "{} below {}",
                allow.join(", "),
                party.paths.join(", ")
            )];
        }
        allow.extend(party.named.iter().map(request));
        let first = party.hosts.first();
        let upstream = first
            .and_then(|host| self.upstream(&host.0, party.ports.first().copied().unwrap_or(443)));
        PartyReport {
            name: party.name.clone(),
            hosts: party.hosts.iter().map(|host| host.0.clone()).collect(),
            ports: party.ports.clone(),
            allow,
            internal: party.internal.iter().map(request).collect(),
            clearance: party.clearance.name().to_string(),
            upstream: upstream.map(ToString::to_string),
            connection: self.connection_report(party),
        }
    }

    fn connection_report(&self, party: &kernel::Party) -> Vec<String> {
        let mut said = Vec::new();
        for identity in &self.identities {
            if identity.hosts == party.hosts && identity.ports == party.ports {
                said.push(format!("shows the client certificate {}", identity.name));
            }
        }
        for connection in &self.connections {
            if connection.hosts != party.hosts || connection.ports != party.ports {
                continue;
            }
            if !connection.host_keys.is_empty() {
                let keys: Vec<&str> = connection
                    .host_keys
                    .iter()
                    .map(|key| key.fingerprint.as_str())
                    .collect();
                said.push(format!("SSH host key {}", keys.join(" or ")));
            }
            said.extend(
                connection.rate.map(|rate| {
                    format!("at most {} requests in {} s", rate.requests, rate.seconds)
                }),
            );
            said.extend(
                connection
                    .connections
                    .map(|most| format!("at most {most} connections at a time")),
            );
        }
        said
    }

    fn warnings(&self) -> Vec<String> {
        let policy = &self.kernel;
        let mut warnings = Vec::new();
        for party in policy
            .parties
            .iter()
            .filter(|party| party.gate == Gate::Host)
        {
            if party.hosts.iter().any(|host| host.0 == "*") {
                warnings.push(format!(
                    "party `{}` lets requests out to every host, whoever named it to the agent",
                    party.name
                ));
            }
        }
        for rule in &policy.sources {
            let steering = [
                Kind::Host,
                Kind::Url,
                Kind::Command,
                Kind::Email,
                Kind::Account,
            ];
            let whole = matches!(&rule.of, SourcePattern::Location { tree, path }
                if tree == crate::bind::WORKSPACE && path.0.split(" !").next() == Some("**"));
            if whole && steering.iter().any(|kind| rule.trusted.contains(*kind)) {
                warnings.push(format!(
                    "the whole workspace is trusted for {}: whoever can write a file there can steer the agent",
                    kinds(rule.trusted).join(", ")
                ));
            }
        }
        if policy.sensitive.is_empty() {
            warnings.push(
                "nothing is sensitive: everything that the agent reads may go out".to_string(),
            );
        }
        warnings
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => writeln!(f, "policy: {file}, and the built-in default")?,
            None => writeln!(f, "policy: the built-in default")?,
        }
        writeln!(f, "epoch: {}", self.epoch.get(..16).unwrap_or(&self.epoch))?;
        writeln!(f, "\ntrusted")?;
        for source in &self.sources {
            let kinds = match source.trusted.len() {
                n if n == Kind::ALL.len() => "everything".to_string(),
                _ => source.trusted.join(", "),
            };
            writeln!(f, "  {}: {kinds}", source.source)?;
        }
        writeln!(f, "\nsensitive")?;
        for level in &self.sensitive {
            let bare: Vec<String> = level
                .patterns
                .iter()
                .map(|pattern| {
                    pattern
                        .split(" (except")
                        .next()
                        .unwrap_or_default()
                        .to_string()
                })
                .collect();
            writeln!(f, "  {}: {}", level.level, shortened(&bare, 12))?;
        }
        writeln!(f, "\nparties, the first that matches counts")?;
        for party in &self.parties {
            write!(f, "  {}: {}", party.name, shortened(&party.hosts, 4))?;
            if !party.ports.is_empty() {
                let ports: Vec<String> = party.ports.iter().map(u16::to_string).collect();
                write!(f, " port {}", ports.join(", "))?;
            }
            if party.internal.is_empty() {
                write!(f, ": releases {}", party.allow.join(", "))?;
            } else {
                write!(
                    f,
                    ": model, {} internal requests; otherwise {}",
                    party.internal.len(),
                    party.allow.join(", ")
                )?;
            }
            if party.clearance != "public" {
                write!(f, "; may get {}", party.clearance)?;
            }
            if let Some(upstream) = &party.upstream {
                write!(f, "; reached at {upstream}")?;
            }
            for said in &party.connection {
                write!(f, "; {said}")?;
            }
            writeln!(f)?;
        }
        if !self.tools.is_empty() {
            writeln!(f, "\ntools, the first that matches counts")?;
            for tool in &self.tools {
                write!(f, "  {}: {}", tool.name, tool.effect)?;
                if !tool.gate.is_empty() {
                    write!(f, ", steered by {}", tool.gate.join(", "))?;
                }
                if tool.clearance != "public" {
                    write!(f, "; may get {}", tool.clearance)?;
                }
                writeln!(f)?;
            }
        }
        if !self.typed.is_empty() {
            writeln!(f, "\nanswers that may steer")?;
            for typed in &self.typed {
                writeln!(
                    f,
                    "  {}: {} of {} as {} for {}",
                    typed.name,
                    typed.field,
                    typed.from,
                    typed.kind,
                    typed.to.join(", ")
                )?;
            }
        }
        if !self.derive_off.is_empty() {
            writeln!(f, "\nno derivation by {}", self.derive_off.join(", "))?;
        }
        if !self.credentials.is_empty() {
            writeln!(f, "\ncredentials, the agent sees placeholders")?;
            for credential in &self.credentials {
                writeln!(
                    f,
                    "  {}: {}",
                    credential.env,
                    shortened(&credential.hosts, 4)
                )?;
            }
        }
        writeln!(f, "\nheld because it runs later")?;
        for (place, n) in &self.executes {
            writeln!(
                f,
                "  {place}: {n} pattern{}",
                if *n == 1 { "" } else { "s" }
            )?;
        }
        writeln!(f, "\nrules that refuse")?;
        match self.rules.as_slice() {
            [] => writeln!(f, "  none")?,
            rules => rules.iter().try_for_each(|rule| writeln!(f, "  {rule}"))?,
        }
        writeln!(f, "\nagent's state")?;
        match self.state.as_slice() {
            [] => writeln!(f, "  none")?,
            state => state.iter().try_for_each(|tree| writeln!(f, "  {tree}"))?,
        }
        writeln!(f, "\nspeculation: {}", self.speculation)?;
        writeln!(
            f,
            "oracle: {}",
            self.oracle
                .as_deref()
                .unwrap_or("ask on a terminal; otherwise keep everything for review")
        )?;
        for warning in &self.warnings {
            writeln!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}

fn kinds(set: KindSet) -> Vec<&'static str> {
    Kind::ALL
        .into_iter()
        .filter(|kind| set.contains(*kind))
        .map(Kind::name)
        .collect()
}

fn described(of: &SourcePattern) -> String {
    let with_exceptions = |text: &str| {
        let mut parts = text.split(" !");
        let first = parts.next().unwrap_or_default().to_string();
        let except: Vec<&str> = parts.collect();
        if except.is_empty() {
            first
        } else {
            format!("{first} (except {})", except.join(", "))
        }
    };
    match of {
        SourcePattern::Task => "your task".to_string(),
        SourcePattern::Location { tree, path } if tree == "*" => with_exceptions(&path.0),
        SourcePattern::Location { tree, path } => {
            format!("{tree}/{}", with_exceptions(path.0.trim_start_matches('/')))
        }
        SourcePattern::Party(host) => host.0.clone(),
        SourcePattern::Tool(name) => format!("tool {}", name.0),
    }
}

fn request(rule: &PathRule) -> String {
    let path = if rule.path.0 == "**" {
        ""
    } else {
        rule.path.0.as_str()
    };
    format!("{} {path}", rule.methods.join("|"))
        .trim()
        .to_string()
}

fn shortened(words: &[String], max: usize) -> String {
    let shown: Vec<&str> = words.iter().take(max).map(String::as_str).collect();
    let more = words.len().saturating_sub(max);
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{tail}", shown.join(", "))
}
