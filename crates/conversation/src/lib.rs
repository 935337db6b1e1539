//! Reads model-provider protocols, and puts notices into them. Pure: bytes in, values out.
//!
//! What is read here was written by the agent and its model. It is evidence, never authority: it can
//! make Kairos more careful and tell a person what led to an effect, and nothing else.

pub mod protocol;
pub mod providers;
pub mod item;
pub mod response;
pub mod notices;
pub mod trace;
pub mod commands;
pub mod app_server;
mod anthropic;
mod openai_responses;
mod openai_chat;
mod gemini;
mod sse;
mod json;
mod splice;

pub use item::{Item, ReadError, Request};
pub use notices::Ledger;
pub use protocol::{Call, Protocol, Purpose};
pub use response::{ResponseReader, read_response};
pub use trace::Reader;

/// Reads a complete request body.
///
/// # Errors
/// When the body is not a JSON object; unknown or missing fields are no error.
pub fn read_request(protocol: Protocol, body: &[u8]) -> Result<Request, ReadError> {
    let body = json::object(body)?;
    Ok(match protocol {
        Protocol::AnthropicMessages => anthropic::read_request(&body),
        Protocol::OpenAiResponses => openai_responses::read_request(&body),
        Protocol::OpenAiChat => openai_chat::read_request(&body),
        Protocol::Gemini => gemini::read_request(&body),
    })
}
