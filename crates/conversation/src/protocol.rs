//! Which protocol a request speaks, told by its method, host and path alone.

use crate::providers;

/// The language spoken on a model path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Anthropic Messages.
    AnthropicMessages,
    /// OpenAI Responses, over HTTP or as WebSocket messages.
    OpenAiResponses,
    /// OpenAI Chat Completions.
    OpenAiChat,
    /// Gemini `generateContent`.
    Gemini,
}

/// What a request on a model path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The model's next turn.
    Generate,
    /// A shorter form of the conversation, which replaces it.
    Compact,
    /// The number of tokens a request would have.
    Count,
    /// The list of models, or one of them.
    Models,
}

/// A request on a model path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    /// The language of its body.
    pub protocol: Protocol,
    /// What it is for.
    pub purpose: Purpose,
}

impl Protocol {
    /// The protocol of a request to a known provider, if its path is a model path. Everything else
    /// on the same host (telemetry, settings, uploads) is an ordinary request, hence nothing.
    #[must_use]
    pub fn of(method: &str, host: &str, path: &str) -> Option<Self> {
        Call::of(method, host, path).map(|call| call.protocol)
    }
}

impl Call {
    /// As [`Protocol::of`], with the purpose.
    #[must_use]
    pub fn of(method: &str, host: &str, path: &str) -> Option<Self> {
        providers::known(host)?.call(method, path)
    }

    /// For a host that the operator named as a provider: a gateway, a local model server. The
    /// path may have any prefix.
    #[must_use]
    pub fn of_path(method: &str, path: &str) -> Option<Self> {
        providers::anywhere(method, path)
    }
}
