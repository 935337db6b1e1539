//! A language model as oracle, behind any endpoint that speaks OpenAI chat completions or Anthropic
//! messages: temperature 0, no tools, structured answers, retries and tokens within a budget. Late,
//! failing or talking prose: everything it was asked about is refused.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kernel::Verdict;
use monitor::{Answer, Judgement, Oracle, View, ViewHold};
use serde_json::{Value, json};
use url::Url;

use crate::ask::Explain;
use crate::brief::{HOLDS_MAX, INSTRUCTIONS, brief};
use crate::http::{self, HttpError};
use crate::printable::{printable, shortened};
use crate::spec::Setting;
use crate::wire;

/// Tokens that one answer may have.
const ANSWER_TOKENS_MAX: u64 = 4096;
/// The longest pause before another try.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// The language an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// OpenAI chat completions, and everything compatible with them.
    OpenAi,
    /// Anthropic messages.
    Anthropic,
}

impl Wire {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    fn base(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com/v1",
        }
    }

    fn key_env(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
        }
    }
}

/// Which model, where, and what it may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its language.
    pub wire: Wire,
    /// The model's name there.
    pub model: String,
    /// Base address; the usual one of the wire when `None`.
    pub url: Option<String>,
    /// The variable that holds the key; the usual one of the wire when `None`.
    pub key_env: Option<String>,
    /// Tries after the first for each question.
    pub retries: u32,
    /// Tokens that all questions of a session may use together.
    pub tokens_max: u64,
    /// Dollars for a million tokens, in and out, to tell what it cost.
    pub price: Option<(Price, Price)>,
}

/// Dollars for a million tokens, in thousandths.
pub type Price = u64;

impl Endpoint {
    /// A model at its usual address.
    pub fn new(wire: Wire, model: impl Into<String>) -> Self {
        Self {
            wire,
            model: model.into(),
            url: None,
            key_env: None,
            retries: 2,
            tokens_max: 500_000,
            price: None,
        }
    }

    /// Reads `PROVIDER/NAME` and the settings after it (`url=`, `key=`, `retries=`, `tokens=`, `price=IN/OUT`).
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn parse(name: &str, settings: &[String]) -> Result<Self, String> {
        let help = "write `model:openai/NAME` or `model:anthropic/NAME`, and after it any of `url=BASE`, `key=VARIABLE`, \
                    `retries=N`, `tokens=N`, `price=IN/OUT` (dollars for a million tokens)";
        let (wire, model) = match name.split_once('/') {
            Some(("openai", model)) => (Wire::OpenAi, model),
            Some(("anthropic", model)) => (Wire::Anthropic, model),
            _ => {
                return Err(format!(
                    "`model:{name}` does not say which API it speaks; {help}"
                ));
            }
        };
        if model.is_empty() {
            return Err(format!("`model:{name}` names no model; {help}"));
        }
        let mut endpoint = Self::new(wire, model);
        for setting in settings {
            let wrong = || format!("`{setting}` is no setting of a model; {help}");
            let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
            match key {
                "url" => {
                    Url::parse(value).map_err(|e| format!("`{value}` is no address: {e}"))?;
                    endpoint.url = Some(value.to_string());
                }
                "key" => endpoint.key_env = Some(value.to_string()),
                "retries" => endpoint.retries = value.parse().map_err(|_| wrong())?,
                "tokens" => endpoint.tokens_max = value.parse().map_err(|_| wrong())?,
                "price" => {
                    let price = value
                        .split_once('/')
                        .and_then(|(a, b)| Some((thousandths(a)?, thousandths(b)?)));
                    endpoint.price = Some(price.ok_or_else(wrong)?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(endpoint)
    }

    fn address(&self) -> Result<Url, String> {
        let base = self.url.as_deref().unwrap_or(self.wire.base());
        let path = match self.wire {
            Wire::OpenAi => "chat/completions",
            Wire::Anthropic => "messages",
        };
        let base = base.trim_end_matches('/');
        let whole = match self.wire {
            // Bases are given with and without the version.
            Wire::Anthropic if !base.ends_with("/v1") => format!("{base}/v1/{path}"),
            _ => format!("{base}/{path}"),
        };
        Url::parse(&whole).map_err(|e| format!("`{base}` is no address: {e}"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model:{}/{}", self.wire.name(), self.model)?;
        if let Some(url) = &self.url {
            write!(f, " url={url}")?;
        }
        if let Some(key) = &self.key_env {
            write!(f, " key={key}")?;
        }
        let usual = Self::new(self.wire, "");
        if self.retries != usual.retries {
            write!(f, " retries={}", self.retries)?;
        }
        if self.tokens_max != usual.tokens_max {
            write!(f, " tokens={}", self.tokens_max)?;
        }
        if let Some((a, b)) = self.price {
            write!(f, " price={}/{}", dollars(a), dollars(b))?;
        }
        Ok(())
    }
}

/// What a session's questions have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests, retries included.
    pub requests: u64,
    /// Tokens in.
    pub tokens_in: u64,
    /// Tokens out.
    pub tokens_out: u64,
}

/// The oracle `model:…`.
pub struct Model {
    endpoint: Endpoint,
    address: Url,
    /// As its header has it.
    key: Option<String>,
    deadline: Duration,
    policy: String,
    explain: Arc<dyn Explain>,
    spent: Mutex<Spent>,
}

impl Model {
    /// A model that is asked at this endpoint.
    ///
    /// # Errors
    /// When the address cannot be used, or the key is not there.
    pub fn new(endpoint: Endpoint, setting: &Setting) -> Result<Self, String> {
        let address = endpoint.address()?;
        let variable = endpoint
            .key_env
            .as_deref()
            .unwrap_or(endpoint.wire.key_env());
        let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
        let key = match endpoint.wire {
            Wire::OpenAi => key.map(|key| format!("Bearer {key}")),
            Wire::Anthropic => key,
        };
        let here = address.host_str().is_some_and(is_loopback);
        if key.is_none() && (endpoint.key_env.is_some() || endpoint.url.is_none()) {
            return Err(format!(
                "the variable `{variable}`, which should hold the key of {endpoint}, is not set"
            ));
        }
        if key.is_some() && address.scheme() == "http" && !here {
            return Err(format!(
                "`{address}` would send the key in the clear; use https"
            ));
        }
        Ok(Self {
            endpoint,
            address,
            key,
            deadline: setting.deadline,
            policy: setting.policy.clone(),
            explain: Arc::clone(&setting.explain),
            spent: Mutex::default(),
        })
    }

    /// What its questions have used so far.
    pub fn spent(&self) -> Spent {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks about some holds.
    fn ask(
        &self,
        view: &View,
        holds: &[&ViewHold],
        end: Instant,
    ) -> Result<(Judgement, Vec<String>), String> {
        let mut chance = [0u8; 16];
        getrandom::fill(&mut chance)
            .map_err(|e| format!("the system gives no random bytes: {e}"))?;
        let key: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        let question = brief(view, holds, &self.policy, &key, self.explain.as_ref());
        let said = self.request(&question, end)?;
        let asked = View {
            task: Vec::new(),
            holds: holds.iter().map(|hold| (*hold).clone()).collect(),
            trace: Vec::new(),
        };
        Ok(wire::verdicts(&said, &asked))
    }

    /// One question, tried again while that may help.
    fn request(&self, question: &str, end: Instant) -> Result<String, String> {
        let mut structured = true;
        let mut tries = 0;
        let mut pause = Duration::from_millis(250);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.late());
            }
            let spent = self.spent();
            if spent.tokens_in + spent.tokens_out >= self.endpoint.tokens_max {
                return Err(format!(
                    "its {} tokens are used up",
                    self.endpoint.tokens_max
                ));
            }
            self.spent
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .requests += 1;
            let body = self.body(question, structured).to_string().into_bytes();
            let why = match http::post(&self.address, &self.headers(), body, left) {
                Err(HttpError::Late) => return Err(self.late()),
                Err(HttpError::Address(why)) => return Err(why),
                Err(HttpError::Broken(why)) => why,
                Ok(answer) => match answer.status {
                    200 => return self.said(&answer.body),
                    // Some endpoints know no structured answers.
                    400 | 422 if structured => {
                        structured = false;
                        continue;
                    }
                    408 | 409 | 429 | 500..=599 => {
                        if let Some(wait_s) = answer.retry_after {
                            pause = pause.max(Duration::from_secs(wait_s));
                        }
                        complaint(answer.status, &answer.body)
                    }
                    status => return Err(complaint(status, &answer.body)),
                },
            };
            tries += 1;
            if tries > self.endpoint.retries {
                return Err(format!("{why} ({tries} tries)"));
            }
            let left = end.saturating_duration_since(Instant::now());
            if pause >= left {
                return Err(format!("{why}; there is no time for another try"));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        match (self.endpoint.wire, &self.key) {
            (Wire::Anthropic, Some(key)) => {
                vec![("x-api-key", key), ("anthropic-version", "2023-06-01")]
            }
            (Wire::Anthropic, None) => vec![("anthropic-version", "2023-06-01")],
            (Wire::OpenAi, Some(key)) => vec![("authorization", key)],
            (Wire::OpenAi, None) => Vec::new(),
        }
    }

    fn body(&self, question: &str, structured: bool) -> Value {
        let mut body = match self.endpoint.wire {
            Wire::OpenAi => json!({
                "model": self.endpoint.model,
                "temperature": 0,
                "max_tokens": ANSWER_TOKENS_MAX,
                "messages": [
                    {"role": "system", "content": INSTRUCTIONS},
                    {"role": "user", "content": question},
                ],
            }),
            Wire::Anthropic => json!({
                "model": self.endpoint.model,
                "temperature": 0,
                "max_tokens": ANSWER_TOKENS_MAX,
                "system": INSTRUCTIONS,
                "messages": [{"role": "user", "content": question}],
            }),
        };
        if structured && let Some(body) = body.as_object_mut() {
            let (name, value) = match self.endpoint.wire {
                Wire::OpenAi => (
                    "response_format",
                    json!({"type": "json_schema", "json_schema": {"name": "verdicts", "strict": true, "schema": schema()}}),
                ),
                Wire::Anthropic => (
                    "output_config",
                    json!({"format": {"type": "json_schema", "schema": schema()}}),
                ),
            };
            body.insert(name.to_string(), value);
        }
        body
    }

    /// The text of an answer; counts what it cost.
    fn said(&self, body: &[u8]) -> Result<String, String> {
        let answer: Value = serde_json::from_slice(body)
            .map_err(|e| format!("the endpoint's answer is not JSON: {e}"))?;
        let usage = |names: [&str; 2]| {
            let usage = answer.get("usage");
            names
                .iter()
                .find_map(|name| usage?.get(*name)?.as_u64())
                .unwrap_or(0)
        };
        {
            let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
            spent.tokens_in += usage(["prompt_tokens", "input_tokens"]);
            spent.tokens_out += usage(["completion_tokens", "output_tokens"]);
        }
        let text = match self.endpoint.wire {
            Wire::OpenAi => answer
                .pointer("/choices/0/message/content")
                .and_then(Value::as_str)
                .map(str::to_string),
            Wire::Anthropic => answer
                .get("content")
                .and_then(Value::as_array)
                .map(|blocks| {
                    blocks
                        .iter()
                        .filter_map(|block| block.get("text")?.as_str())
                        .collect()
                }),
        };
        let cut = answer
            .pointer("/choices/0/finish_reason")
            .and_then(Value::as_str)
            == Some("length")
            || answer.get("stop_reason").and_then(Value::as_str) == Some("max_tokens");
        if cut {
            return Err(format!(
                "its answer is longer than {ANSWER_TOKENS_MAX} tokens"
            ));
        }
        text.map(|text| unwrapped(&text).to_string())
            .ok_or_else(|| "the endpoint's answer holds no text".to_string())
    }

    fn late(&self) -> String {
        format!("it did not answer within {} s", self.deadline.as_secs())
    }

    fn account(&self) -> String {
        let spent = self.spent();
        let cost = self.endpoint.price.map(|(a, b)| {
            // Thousandths of a dollar for a million tokens: 10^-9 dollars each.
            let nano = spent.tokens_in * a + spent.tokens_out * b;
            format!(
                ", ${}.{:04}",
                nano / 1_000_000_000,
                nano % 1_000_000_000 / 100_000
            )
        });
        format!(
            "{} requests, {} tokens in, {} out{}",
            spent.requests,
            spent.tokens_in,
            spent.tokens_out,
            cost.unwrap_or_default()
        )
    }
}

impl Oracle for Model {
    fn name(&self) -> String {
        format!(
            "model:{}/{}",
            self.endpoint.wire.name(),
            printable(&self.endpoint.model)
        )
    }

    fn judge(&self, view: &View) -> Judgement {
        let now = Instant::now();
        let end = now
            .checked_add(self.deadline)
            .unwrap_or(now + Duration::from_secs(365 * 86_400));
        let mut answers: Vec<Answer> = Vec::new();
        let mut notes = Vec::new();
        let mut failed = None;
        let holds: Vec<&ViewHold> = view.holds.iter().collect();
        for some in holds.chunks(HOLDS_MAX) {
            let asked = match &failed {
                None => self.ask(view, some, end),
                Some(why) => Err(String::clone(why)),
            };
            match asked {
                Ok((Judgement::Answers(given), more)) => {
                    answers.extend(given);
                    notes.extend(more);
                }
                Ok((Judgement::Failed(why) | Judgement::Keep(why), _)) => {
                    answers.extend(refused(some, &why));
                    notes.push(why);
                }
                Err(why) => {
                    answers.extend(refused(some, &why));
                    failed.get_or_insert(why);
                }
            }
        }
        notes.extend(failed.iter().cloned());
        notes.push(self.account());
        for note in notes {
            let line = format!("kairos: oracle {}: {}\n", self.name(), printable(&note));
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
        match failed {
            Some(why) if answers.iter().all(|answer| answer.reason == failure(&why)) => {
                Judgement::Failed(why)
            }
            _ => Judgement::Answers(answers),
        }
    }
}

fn refused(holds: &[&ViewHold], why: &str) -> Vec<Answer> {
    let refuse = |hold: &&ViewHold| Answer {
        hold: hold.hold,
        manifest: hold.manifest,
        verdict: Some(Verdict::Refuse),
        reason: failure(why),
    };
    holds.iter().map(refuse).collect()
}

fn failure(why: &str) -> String {
    format!("the oracle failed: {why}")
}

fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["verdicts"],
        "properties": {"verdicts": {"type": "array", "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["hold", "verdict", "reason"],
            "properties": {
                "hold": {"type": "string"},
                "verdict": {"type": "string", "enum": ["release", "refuse", "keep"]},
                "reason": {"type": "string"},
            },
        }}},
    })
}

/// An answer out of the code fence that models like to put around it.
fn unwrapped(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|inner| inner.strip_suffix("```"));
    inner.unwrap_or(text).trim()
}

fn complaint(status: u16, body: &[u8]) -> String {
    let told: Option<String> = serde_json::from_slice::<Value>(body).ok().and_then(|body| {
        let message = body
            .pointer("/error/message")
            .or_else(|| body.get("message"))?;
        message.as_str().map(str::to_string)
    });
    match told {
        Some(told) => format!(
            "the endpoint answered {status}: {}",
            shortened(&printable(&told), 200)
        ),
        None => format!("the endpoint answered {status}"),
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn thousandths(dollars: &str) -> Option<u64> {
    let (whole, part) = dollars.split_once('.').unwrap_or((dollars, ""));
    let part = format!("{part:0<3}");
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = part.get(..3)?.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(part)
}

fn dollars(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
