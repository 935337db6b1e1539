//! `kairos decide --stdio`: one process for many sessions. A line in, a line out, in order;
//! whatever is wrong with a line is answered on its own line, and nothing is decided by it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use kernel::policy::{Policy, Rules};
use kernel::{Carried, Scanner};
use monitor::session::PooledChance;
use monitor::{Chance, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use store::{Disk, MemoryDisk, SessionDir};

use crate::reply::{Mistake, Reply};
use crate::request::{
    Done, Head, Incoming, LoadPolicy, OfHold, OfSession, Open, Propose, VERBS, Verdict,
};
use crate::session::Harness;

/// A line is not longer.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Where a policy's text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyText {
    /// A file.
    File(PathBuf),
    /// The text itself.
    Text(String),
}

/// A policy that was read without mistakes.
#[derive(Clone)]
pub struct LoadedPolicy {
    /// What the kernel decides by.
    pub policy: Arc<Policy>,
    /// Its refusing rules.
    pub rules: Arc<dyn Rules + Send + Sync>,
    /// What it allows, in words, for oracles.
    pub summary: String,
    /// Text that reads back to the same policy, kept beside a session's log.
    pub recorded: String,
}

/// What the service is given from outside.
pub struct Service {
    /// Where sessions are written.
    pub disk: Arc<dyn Disk>,
    /// Below which directory.
    pub root: PathBuf,
    /// What time it is, RFC 3339.
    pub clock: fn() -> String,
    /// Policies, views and the web, which other crates read and write.
    pub outside: Box<dyn Outside>,
    /// Whether a session's files go away when it is closed.
    pub forget: bool,
}

/// What the protocol leaves to other crates.
pub trait Outside {
    /// Reads a policy.
    ///
    /// # Errors
    /// What is wrong with it, with places.
    fn load(&self, text: &PolicyText) -> Result<LoadedPolicy, String>;

    /// Writes beside a session's log what is needed to replay it.
    ///
    /// # Errors
    /// What could not be written, and why.
    fn keep(&self, dir: &SessionDir, policy: &LoadedPolicy) -> Result<(), String>;

    /// A view as oracles read it; `policy` is the policy in words.
    fn view(&self, view: &View, policy: &str) -> Value;

    /// Host and port out of a `Host` header, as on the wire.
    ///
    /// # Errors
    /// Why it is none.
    fn authority(&self, text: &str) -> Result<(String, Option<u16>), String>;

    /// A request's path with its query in the one form that is judged, as on the wire.
    ///
    /// # Errors
    /// Why there is none: servers read it in different ways.
    fn target(&self, path: &str) -> Result<String, String>;

    /// What bytes carry, also where something is packed in them.
    ///
    /// # Errors
    /// Why they cannot be searched.
    fn carried(&self, scanner: &Scanner, bytes: &[u8]) -> Result<Carried, String>;
}

/// The open sessions of a process.
pub struct Sessions {
    service: Service,
    chance: Arc<dyn Chance>,
    policies: BTreeMap<String, LoadedPolicy>,
    open: BTreeMap<String, (Harness, String)>,
    used: BTreeSet<String>,
    line: u64,
}

#[derive(Serialize)]
struct Answer<'a, T: Serialize> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    ok: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    reply: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Mistake>,
}

impl Sessions {
    /// None open yet.
    pub fn new(service: Service) -> Self {
        Self {
            service,
            chance: Arc::new(PooledChance::default()),
            policies: BTreeMap::new(),
            open: BTreeMap::new(),
            used: BTreeSet::new(),
            line: 0,
        }
    }

    /// Answers lines until there are no more. Answers are sent as soon as no further line is
    /// waiting, so a harness may ask one thing at a time or many at once.
    ///
    /// # Errors
    /// When a stream fails.
    pub fn serve(&mut self, input: impl Read, output: impl Write) -> io::Result<()> {
        let mut input = BufReader::with_capacity(1 << 18, input);
        let mut output = io::BufWriter::with_capacity(1 << 18, output);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut input)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)?;
            if read == 0 {
                return output.flush();
            }
            if read as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
                let error = format!("a line is longer than {LINE_BYTES_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            self.line += 1;
            if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                self.answer(&line, &mut output)?;
            }
            if !input.buffer().contains(&b'\n') {
                output.flush()?;
            }
        }
    }

    /// Answers one line.
    ///
    /// # Errors
    /// When the answer cannot be written.
    pub fn answer(&mut self, line: &[u8], output: &mut impl Write) -> io::Result<()> {
        let (id, result) = match std::str::from_utf8(line) {
            Err(error) => (
                None,
                Err(self.unreadable(&error.to_string(), error.valid_up_to())),
            ),
            Ok(text) => match serde_json::from_str::<Head<'_>>(text) {
                Err(error) => (None, Err(self.mistaken(&error))),
                Ok(head) => (head.id, self.act(head.verb.as_deref(), text)),
            },
        };
        let answer = match result {
            Ok(reply) => Answer {
                id,
                ok: true,
                reply,
                error: None,
            },
            Err(mut mistake) => {
                if mistake.r#where.is_empty() {
                    mistake.r#where = format!("line {}", self.line);
                }
                Answer {
                    id,
                    ok: false,
                    reply: None,
                    error: Some(mistake),
                }
            }
        };
        serde_json::to_writer(&mut *output, &answer)?;
        output.write_all(b"\n")
    }

    fn act(&mut self, verb: Option<&str>, text: &str) -> Result<Option<Reply>, Mistake> {
        match verb {
            Some("policy") => self.policy(self.read(text)?).map(Some),
            Some("open") => self.begin(self.read(text)?),
            Some("incoming") => {
                let request: Incoming = self.read(text)?;
                let event = self.session(&request.session)?.0.incoming(request)?;
                Ok(Some(Reply::Event { event: event.0 }))
            }
            Some("propose") => {
                let request: Propose = self.read(text)?;
                let (harness, _) = self.session(&request.session)?;
                let decided = harness.propose(request, self.service.outside.as_ref())?;
                Ok(Some(Reply::Decided(Box::new(decided))))
            }
            Some("done") => {
                let request: Done = self.read(text)?;
                self.session(&request.session)?.0.done(request)?;
                Ok(None)
            }
            Some("verdict") => {
                let request: Verdict = self.read(text)?;
                let resolved = self.session(&request.session)?.0.verdict(request)?;
                Ok(Some(Reply::Resolved(resolved)))
            }
            Some("expire") => {
                let request: OfHold = self.read(text)?;
                let resolved = self.session(&request.session)?.0.expire(&request.hold)?;
                Ok(Some(Reply::Resolved(resolved)))
            }
            Some("withdraw") => {
                let request: OfHold = self.read(text)?;
                let resolved = self.session(&request.session)?.0.withdraw(&request.hold)?;
                Ok(Some(Reply::Resolved(resolved)))
            }
            Some("held") => {
                let request: OfSession = self.read(text)?;
                Ok(Some(self.session(&request.session)?.0.held()))
            }
            Some("view") => {
                let request: OfSession = self.read(text)?;
                let (harness, policy) = self.session(&request.session)?;
                let summary = self.policies.get(policy).map_or("", |p| &p.summary);
                let view = self.service.outside.view(&harness.view(), summary);
                Ok(Some(Reply::View { view }))
            }
            Some("close") => self.close(self.read(text)?).map(Some),
            other => Err(Mistake::new(
                match other {
                    Some(verb) => format!("`{verb}` is nothing that can be asked"),
                    None => "`do` is missing".to_string(),
                },
                format!("`do` is one of {}", VERBS.join(", ")),
            )),
        }
    }

    fn policy(&mut self, request: LoadPolicy) -> Result<Reply, Mistake> {
        let text = match (request.path, request.toml) {
            (Some(path), None) => PolicyText::File(path.into()),
            (None, Some(text)) => PolicyText::Text(text),
            _ => {
                return Err(Mistake::new(
                    "a policy is one file or one text",
                    "give either `path` or `toml`",
                ));
            }
        };
        let loaded = self.service.outside.load(&text).map_err(|errors| {
            Mistake::new(
                format!("the policy cannot be used\n{errors}"),
                "correct it and load it again; sessions need it",
            )
        })?;
        let epoch = loaded.policy.epoch.hex();
        // Sessions that are open keep the one they were opened with.
        self.policies.insert(request.name.clone(), loaded);
        Ok(Reply::Policy {
            policy: request.name,
            epoch,
        })
    }

    fn begin(&mut self, request: Open) -> Result<Option<Reply>, Mistake> {
        let name = request.session;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.chars().all(plain)
        {
            return Err(Mistake::new(
                format!("`{name}` is no name for a session"),
                "use letters, digits, `-`, `_` and `.`, at most 200 of them",
            ));
        }
        if self.open.contains_key(&name) || (!self.service.forget && self.used.contains(&name)) {
            return Err(Mistake::new(
                format!("there is a session `{name}`"),
                "close it first, or give another name",
            ));
        }
        let policy = self.policies.get(&request.policy).ok_or_else(|| {
            Mistake::new(
                format!("no policy `{}` is loaded", request.policy),
                "load it first: {\"do\":\"policy\",\"name\":…,\"path\":…}",
            )
        })?;
        let service = &self.service;
        // What is forgotten at the end is kept apart, so that it is gone at once.
        let own = service.forget.then(MemoryDisk::shared);
        let harness = Harness::open(
            (
                own.as_ref().unwrap_or(&service.disk),
                service.forget.then_some(&service.disk),
            ),
            &service.root,
            &name,
            policy,
            request.workspace.as_deref(),
            (service.clock, &self.chance),
        )?;
        service.outside.keep(harness.dir(), policy).map_err(|why| {
            Mistake::new(
                why,
                "free some space, or give another directory with `--log`",
            )
        })?;
        let event = request.task.map(|task| harness.task(task));
        self.used.insert(name.clone());
        self.open.insert(name, (harness, request.policy));
        Ok(event.map(|event| Reply::Event { event: event.0 }))
    }

    fn close(&mut self, request: OfSession) -> Result<Reply, Mistake> {
        let (harness, _) = self
            .open
            .remove(&request.session)
            .ok_or_else(|| no_session(&request.session))?;
        let refused = harness.close();
        Ok(Reply::Closed { refused })
    }

    fn session(&self, name: &str) -> Result<&(Harness, String), Mistake> {
        self.open.get(name).ok_or_else(|| no_session(name))
    }

    fn read<'de, T: Deserialize<'de>>(&self, text: &'de str) -> Result<T, Mistake> {
        serde_json::from_str(text).map_err(|error| self.mistaken(&error))
    }

    fn mistaken(&self, error: &serde_json::Error) -> Mistake {
        // The position within the line is said in `where`.
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or(&text).to_string();
        self.unreadable(&what, error.column())
    }

    fn unreadable(&self, what: &str, column: usize) -> Mistake {
        Mistake {
            what: what.to_string(),
            r#where: format!("line {}, column {column}", self.line),
            help: "one JSON object a line, as in docs/decide-protocol.md".to_string(),
        }
    }
}

fn no_session(name: &str) -> Mistake {
    Mistake::new(
        format!("there is no open session `{name}`"),
        "open it first: {\"do\":\"open\",\"session\":…,\"policy\":…}",
    )
}
