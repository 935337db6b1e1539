//! The known providers and their model paths.
//!
//! Bedrock is left out on purpose: its requests are signed over the body, so no notice could be put
//! into them; it is an ordinary party until its requests are signed at the boundary.

use crate::protocol::{Call, Protocol, Purpose};
use Protocol::{
    AnthropicMessages as Anthropic, Gemini, OpenAiChat as Chat, OpenAiResponses as Responses,
};
use Purpose::{Compact, Count, Generate, Models};

/// One provider's hosts and the paths below which it serves each protocol.
#[derive(Debug)]
pub struct Provider {
    /// The name for people and policies.
    pub name: &'static str,
    /// Host names; a leading `*` stands for one or more characters without a dot.
    pub hosts: &'static [&'static str],
    /// What is served where; `*` in a prefix stands for one path segment.
    serves: &'static [(&'static str, Service)],
}

/// A set of endpoints below a prefix.
#[derive(Debug, Clone, Copy)]
enum Service {
    /// `responses`, `responses/compact`
    Responses,
    /// `chat/completions`
    Chat,
    /// `messages`, `messages/count_tokens`
    Messages,
    /// `models/*:generateContent` and its kin
    GenerateContent,
    /// `*:generateContent` for the model in the body, and its kin
    Internal,
    /// `models/*:rawPredict` with a Messages body
    RawPredict,
    /// `models`, `models/*`, answered in the form of this protocol
    Models(Protocol),
}

/// Every provider that needs no line in the policy.
pub const PROVIDERS: &[Provider] = &[
    provider(
        "openai",
        &["api.openai.com", "*.api.openai.com"],
        &[
            ("/v1", Service::Responses),
            ("/v1", Service::Chat),
            ("/v1", Service::Models(Responses)),
        ],
    ),
    provider(
        "chatgpt",
        &["chatgpt.com"],
        &[
            ("/backend-api/codex", Service::Responses),
            ("/backend-api/codex", Service::Models(Responses)),
        ],
    ),
    provider(
        "anthropic",
        &["api.anthropic.com"],
        &[
            ("/v1", Service::Messages),
            ("/v1", Service::Chat),
            ("/v1", Service::Models(Anthropic)),
        ],
    ),
    provider(
        "gemini",
        &["generativelanguage.googleapis.com"],
        &[
            ("/v1", Service::GenerateContent),
            ("/v1beta", Service::GenerateContent),
            ("/v1alpha", Service::GenerateContent),
            ("/v1beta", Service::Models(Gemini)),
            ("/v1beta/openai", Service::Chat),
            ("/v1beta/openai", Service::Models(Chat)),
        ],
    ),
    provider(
        "gemini-code-assist",
        &["cloudcode-pa.googleapis.com"],
        &[("", Service::Internal)],
    ),
    provider(
        "vertex",
        &["aiplatform.googleapis.com", "*-aiplatform.googleapis.com"],
        &[
            (
                "/v1/projects/*/locations/*/publishers/google",
                Service::GenerateContent,
            ),
            (
                "/v1beta1/projects/*/locations/*/publishers/google",
                Service::GenerateContent,
            ),
            (
                "/v1/projects/*/locations/*/publishers/anthropic",
                Service::RawPredict,
            ),
            ("/v1/publishers/google", Service::GenerateContent),
            ("/v1beta1/publishers/google", Service::GenerateContent),
            (
                "/v1/projects/*/locations/*/endpoints/openapi",
                Service::Chat,
            ),
            (
                "/v1beta1/projects/*/locations/*/endpoints/openapi",
                Service::Chat,
            ),
        ],
    ),
    provider(
        "azure",
        &[
            "*.openai.azure.com",
            "*.cognitiveservices.azure.com",
            "*.services.ai.azure.com",
        ],
        &[
            ("/openai/deployments/*", Service::Chat),
            ("/openai", Service::Responses),
            ("/openai/v1", Service::Responses),
            ("/openai/v1", Service::Chat),
            ("/models", Service::Chat),
            ("/anthropic/v1", Service::Messages),
        ],
    ),
    provider(
        "openrouter",
        &["openrouter.ai"],
        &[
            ("/api/v1", Service::Chat),
            ("/api/v1", Service::Responses),
            ("/api/v1", Service::Messages),
            ("/api/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "github-copilot",
        &[
            "api.githubcopilot.com",
            "api.individual.githubcopilot.com",
            "api.business.githubcopilot.com",
            "api.enterprise.githubcopilot.com",
        ],
        &[
            ("", Service::Chat),
            ("", Service::Responses),
            ("/v1", Service::Messages),
            ("", Service::Models(Chat)),
        ],
    ),
    provider(
        "github-models",
        &["models.github.ai"],
        &[("/inference", Service::Chat)],
    ),
    provider(
        "groq",
        &["api.groq.com"],
        &[
            ("/openai/v1", Service::Chat),
            ("/openai/v1", Service::Responses),
            ("/openai/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "mistral",
        &["api.mistral.ai", "codestral.mistral.ai"],
        &[("/v1", Service::Chat), ("/v1", Service::Models(Chat))],
    ),
    provider(
        "deepseek",
        &["api.deepseek.com"],
        &[
            ("", Service::Chat),
            ("/v1", Service::Chat),
            ("/beta", Service::Chat),
            ("/anthropic/v1", Service::Messages),
            ("", Service::Models(Chat)),
        ],
    ),
    provider(
        "xai",
        &["api.x.ai"],
        &[
            ("/v1", Service::Chat),
            ("/v1", Service::Responses),
            ("/v1", Service::Messages),
            ("/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "together",
        &["api.together.xyz", "api.together.ai"],
        &[("/v1", Service::Chat), ("/v1", Service::Models(Chat))],
    ),
    provider(
        "fireworks",
        &["api.fireworks.ai"],
        &[
            ("/inference/v1", Service::Chat),
            ("/inference/v1", Service::Responses),
            ("/inference/v1", Service::Messages),
            ("/inference/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "cerebras",
        &["api.cerebras.ai"],
        &[("/v1", Service::Chat), ("/v1", Service::Models(Chat))],
    ),
    provider(
        "moonshot",
        &["api.moonshot.ai", "api.moonshot.cn"],
        &[
            ("/v1", Service::Chat),
            ("/anthropic/v1", Service::Messages),
            ("/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "zai",
        &["api.z.ai", "open.bigmodel.cn"],
        &[
            ("/api/paas/v4", Service::Chat),
            ("/api/coding/paas/v4", Service::Chat),
            ("/api/anthropic/v1", Service::Messages),
        ],
    ),
    provider(
        "dashscope",
        &["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"],
        &[
            ("/compatible-mode/v1", Service::Chat),
            ("/compatible-mode/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "minimax",
        &["api.minimax.io", "api.minimaxi.com"],
        &[("/v1", Service::Chat), ("/anthropic/v1", Service::Messages)],
    ),
    provider(
        "huggingface",
        &["router.huggingface.co"],
        &[
            ("/v1", Service::Chat),
            ("/v1", Service::Responses),
            ("/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "nvidia",
        &["integrate.api.nvidia.com"],
        &[("/v1", Service::Chat), ("/v1", Service::Models(Chat))],
    ),
    provider(
        "deepinfra",
        &["api.deepinfra.com"],
        &[("/v1/openai", Service::Chat)],
    ),
    provider("perplexity", &["api.perplexity.ai"], &[("", Service::Chat)]),
    provider(
        "opencode-zen",
        &["opencode.ai"],
        &[
            ("/zen/v1", Service::Chat),
            ("/zen/v1", Service::Responses),
            ("/zen/v1", Service::Messages),
            ("/zen/v1", Service::GenerateContent),
            ("/zen/v1", Service::Models(Chat)),
        ],
    ),
    provider(
        "vercel",
        &["ai-gateway.vercel.sh"],
        &[
            ("/v1", Service::Chat),
            ("/v1", Service::Responses),
            ("/v1", Service::Messages),
            ("/v1", Service::Models(Chat)),
        ],
    ),
];

const fn provider(
    name: &'static str,
    hosts: &'static [&'static str],
    serves: &'static [(&'static str, Service)],
) -> Provider {
    Provider {
        name,
        hosts,
        serves,
    }
}

/// The provider that `host` (with or without the port 443) belongs to.
#[must_use]
pub fn known(host: &str) -> Option<&'static Provider> {
    let host = host.strip_suffix(":443").unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    PROVIDERS
        .iter()
        .find(|provider| provider.hosts.iter().any(|pattern| is_host(pattern, &host)))
}

impl Provider {
    /// What a request to this provider is, if its path is a model path.
    #[must_use]
    pub fn call(&self, method: &str, path: &str) -> Option<Call> {
        let path = plain(path)?;
        self.serves
            .iter()
            .find_map(|(prefix, service)| service.call(method, strip_prefix(prefix, path)?))
    }
}

/// What a request is to a host that is named as a provider, whatever prefix its paths have.
pub(crate) fn anywhere(method: &str, path: &str) -> Option<Call> {
    const SERVICES: [Service; 7] = [
        Service::Responses,
        Service::Chat,
        Service::Messages,
        Service::GenerateContent,
        Service::RawPredict,
        Service::Internal,
        Service::Models(Chat),
    ];
    let path = plain(path)?;
    let starts = path.match_indices('/').map(|(at, _)| at);
    starts.filter_map(|at| path.get(at..)).find_map(|rest| {
        SERVICES
            .iter()
            .find_map(|service| service.call(method, rest))
    })
}

impl Service {
    /// `rest` is the path after the prefix, with its leading slash.
    fn call(self, method: &str, rest: &str) -> Option<Call> {
        let rest = rest.strip_prefix('/')?;
        let post = method.eq_ignore_ascii_case("POST");
        let get = method.eq_ignore_ascii_case("GET");
        let (protocol, purpose) = match self {
            // A GET is the opening of a WebSocket.
            Self::Responses if post || get => match rest {
                "responses" => (Responses, Generate),
                "responses/compact" if post => (Responses, Compact),
                "responses/input_tokens" if post => (Responses, Count),
                _ => return None,
            },
            Self::Chat if post && rest == "chat/completions" => (Chat, Generate),
            Self::Messages if post => match rest {
                "messages" => (Anthropic, Generate),
                "messages/count_tokens" => (Anthropic, Count),
                _ => return None,
            },
            Self::GenerateContent if post => (
                Gemini,
                generate_content(one_segment(rest.strip_prefix("models/")?)?)?,
            ),
            Self::Internal if post => {
                let (version, _) = rest.split_once(':')?;
                if !version.starts_with("v1") {
                    return None;
                }
                (Gemini, generate_content(one_segment(rest)?)?)
            }
            Self::RawPredict if post => {
                let (model, verb) = one_segment(rest.strip_prefix("models/")?)?.rsplit_once(':')?;
                match verb {
                    "rawPredict" | "streamRawPredict" if model.starts_with("count-tokens") => {
                        (Anthropic, Count)
                    }
                    "rawPredict" | "streamRawPredict" => (Anthropic, Generate),
                    _ => return None,
                }
            }
            Self::Models(protocol) if get => {
                let named = rest.strip_prefix("models/").and_then(one_segment).is_some();
                if rest != "models" && !named {
                    return None;
                }
                (protocol, Models)
            }
            _ => return None,
        };
        Some(Call { protocol, purpose })
    }
}

fn generate_content(segment: &str) -> Option<Purpose> {
    match segment.rsplit_once(':')? {
        (_, "generateContent" | "streamGenerateContent") => Some(Generate),
        (_, "countTokens") => Some(Count),
        _ => None,
    }
}

fn one_segment(rest: &str) -> Option<&str> {
    (!rest.is_empty() && !rest.contains('/')).then_some(rest)
}

/// The path without its query. One that a server might read in two ways is no model path.
fn plain(path: &str) -> Option<&str> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let odd = |segment: &str| segment == "." || segment == ".." || segment.contains(['\\', ';']);
    let mut segments = path.strip_prefix('/')?.split('/');
    let escaped = path.to_ascii_lowercase();
    let ambiguous = ["%2e", "%2f", "%5c", "%25", "%3b"]
        .iter()
        .any(|code| escaped.contains(code));
    let clean = path.is_ascii() && !path.contains("//") && !ambiguous && !segments.any(odd);
    clean.then_some(path)
}

/// What is left of `path` after `prefix`, in which `*` is one segment.
fn strip_prefix<'a>(prefix: &str, path: &'a str) -> Option<&'a str> {
    let mut rest = path;
    for wanted in prefix.split('/').skip(1) {
        rest = rest.strip_prefix('/')?;
        let (segment, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if segment.is_empty() || (wanted != "*" && wanted != segment) {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

fn is_host(pattern: &str, host: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == host,
        Some(("", suffix)) => host.strip_suffix(suffix).is_some_and(|label| {
            // One label, or `region` of `region-service`.
            !label.is_empty() && !label.contains('.')
        }),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: &str, expect: Option<(Protocol, Purpose)>) {
        let mut parts = request.split(' ');
        let (method, host, path) = (
            parts.next().unwrap(),
            parts.next().unwrap(),
            parts.next().unwrap(),
        );
        let got = Call::of(method, host, path).map(|call| (call.protocol, call.purpose));
        assert_eq!(got, expect, "{request}");
    }

    #[test]
    fn model_paths() {
        check(
            "GET api.openai.com /v1/responses",
            Some((Responses, Generate)),
        );
        check(
            "POST API.openai.com:443 /v1/responses?x=1",
            Some((Responses, Generate)),
        );
        check(
            "POST api.openai.com /v1/responses/compact",
            Some((Responses, Compact)),
        );
        check(
            "POST eu.api.openai.com /v1/chat/completions",
            Some((Chat, Generate)),
        );
        check(
            "POST chatgpt.com /backend-api/codex/responses",
            Some((Responses, Generate)),
        );
        check(
            "GET chatgpt.com /backend-api/codex/models?client_version=0.171.0",
            Some((Responses, Models)),
        );
        check(
            "POST api.anthropic.com. /v1/messages?beta=true",
            Some((Anthropic, Generate)),
        );
        check(
            "POST api.anthropic.com /v1/messages/count_tokens",
            Some((Anthropic, Count)),
        );
        check(
            "POST generativelanguage.googleapis.com /v1beta/models/gemini-3:streamGenerateContent?alt=sse",
            Some((Gemini, Generate)),
        );
        check(
            "POST generativelanguage.googleapis.com /v1beta/models/gemini-3:countTokens",
            Some((Gemini, Count)),
        );
        check(
            "POST cloudcode-pa.googleapis.com /v1internal:generateContent",
            Some((Gemini, Generate)),
        );
        check(
            "POST europe-west4-aiplatform.googleapis.com /v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict",
            Some((Anthropic, Generate)),
        );
        check(
            "POST me.openai.azure.com /openai/deployments/gpt/chat/completions?api-version=1",
            Some((Chat, Generate)),
        );
        check(
            "POST openrouter.ai /api/v1/messages",
            Some((Anthropic, Generate)),
        );
        check(
            "POST api.deepseek.com /chat/completions",
            Some((Chat, Generate)),
        );
    }

    #[test]
    fn everything_else_is_an_ordinary_request() {
        for request in [
            "POST api.anthropic.com /api/event_logging/v2/batch",
            "GET api.anthropic.com /api/claude_code/policy_limits",
            "GET api.anthropic.com /v1/messages",
            "POST api.anthropic.com /v1/messages/batches",
            "POST api.anthropic.com /v1/files",
            "POST api.openai.com /v1/files",
            "POST api.openai.com /v1/chat/completions/../../files",
            "POST api.openai.com /v1/chat%2fcompletions",
            "POST api.openai.com //v1/responses",
            "POST api.openai.com /v1/responses/",
            "DELETE api.openai.com /v1/responses",
            "POST api.openai.com.evil.example /v1/responses",
            "POST evilapi.openai.com.example /v1/responses",
            "POST api.openai.com:8443 /v1/responses",
            "POST ab.chatgpt.com /otlp/v1/metrics",
            "GET chatgpt.com /backend-api/plugins/export/curated",
            "POST generativelanguage.googleapis.com /v1beta/files",
            "POST generativelanguage.googleapis.com /v1beta/models/a/b:generateContent",
            "POST generativelanguage.googleapis.com /v1beta/models/a:embedContent",
            "POST storage.googleapis.com /v1/models/a:generateContent",
            "POST a.b.openai.azure.com /openai/responses",
            "POST openai.azure.com /openai/responses",
            "GET github.com /v1/models",
        ] {
            check(request, None);
        }
    }

    #[test]
    fn a_named_provider_may_have_any_prefix() {
        let of =
            |method, path| Call::of_path(method, path).map(|call| (call.protocol, call.purpose));
        assert_eq!(of("POST", "/chat/completions"), Some((Chat, Generate)));
        assert_eq!(
            of("POST", "/gateway/x/v1/responses"),
            Some((Responses, Generate))
        );
        assert_eq!(
            of("POST", "/v1/messages/count_tokens"),
            Some((Anthropic, Count))
        );
        assert_eq!(
            of("POST", "/v1beta/models/m:generateContent"),
            Some((Gemini, Generate))
        );
        assert_eq!(of("GET", "/v1/models"), Some((Chat, Models)));
        assert_eq!(of("POST", "/v1/completions/chat"), None);
        assert_eq!(of("POST", "/collect"), None);
    }
}
