//! The model's answer, whole or as it streams.

use crate::item::{Item, ReadError};
use crate::protocol::Protocol;
use crate::sse::Events;
use crate::{anthropic, gemini, json, openai_chat, openai_responses};
use serde_json::{Map, Value};

/// A whole JSON answer that is longer is not read.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Reads a complete response body that is not a stream.
///
/// # Errors
/// When the body is not JSON.
pub fn read_response(protocol: Protocol, body: &[u8]) -> Result<Vec<Item>, ReadError> {
    match json::parse(body)? {
        Value::Object(body) => Ok(read_object(protocol, &body)),
        // Gemini streams an array where server-sent events were not asked for.
        Value::Array(events) => {
            let mut reader = ResponseReader::new(protocol);
            let events = events.iter().filter_map(Value::as_object);
            let mut items: Vec<Item> = events.flat_map(|event| reader.event(event)).collect();
            items.extend(reader.stream.finish());
            Ok(items)
        }
        _ => Err(ReadError::NotAnObject),
    }
}

/// Reads an answer as it arrives.
#[derive(Debug)]
pub struct ResponseReader {
    protocol: Protocol,
    stream: Stream,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Nothing but white space so far.
    Unknown,
    Events(Events),
    /// One JSON value; emptied when it grows too long.
    Whole(Vec<u8>),
    TooLong,
}

#[derive(Debug)]
enum Stream {
    Anthropic(anthropic::Stream),
    Responses(openai_responses::Stream),
    Chat(openai_chat::Stream),
    Gemini(gemini::Stream),
}

impl ResponseReader {
    /// A reader at the start of a response body.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        let stream = match protocol {
            Protocol::AnthropicMessages => Stream::Anthropic(anthropic::Stream::default()),
            Protocol::OpenAiResponses => Stream::Responses(openai_responses::Stream::default()),
            Protocol::OpenAiChat => Stream::Chat(openai_chat::Stream::default()),
            Protocol::Gemini => Stream::Gemini(gemini::Stream::default()),
        };
        Self {
            protocol,
            stream,
            form: Form::Unknown,
        }
    }

    /// Takes the next bytes of the body and returns the items that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Item> {
        let mut bytes = bytes;
        if let Form::Unknown = self.form {
            let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
            let Some(rest) = start.and_then(|start| bytes.get(start..)) else {
                return Vec::new();
            };
            bytes = rest;
            self.form = match bytes.first() {
                Some(b'{' | b'[') => Form::Whole(Vec::new()),
                _ => Form::Events(Events::default()),
            };
        }
        let mut data: Vec<Vec<u8>> = Vec::new();
        match &mut self.form {
            Form::Events(events) => events.push(bytes, &mut |event| data.push(event.to_vec())),
            Form::Whole(so_far) if so_far.len() + bytes.len() > BODY_BYTES_MAX => {
                self.form = Form::TooLong;
            }
            Form::Whole(so_far) => so_far.extend_from_slice(bytes),
            Form::Unknown | Form::TooLong => {}
        }
        data.iter()
            .flat_map(|data| self.push_message(data))
            .collect()
    }

    /// Takes one WebSocket message, or the data of one event.
    pub fn push_message(&mut self, message: &[u8]) -> Vec<Item> {
        match json::parse(message) {
            Ok(Value::Object(event)) => self.event(&event),
            // `[DONE]`, keep-alives, and what nobody can read.
            _ => Vec::new(),
        }
    }

    /// The body has ended: returns what was still open.
    pub fn finish(&mut self) -> Vec<Item> {
        let mut data: Vec<Vec<u8>> = Vec::new();
        let mut items = Vec::new();
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Events(mut events) => events.finish(&mut |event| data.push(event.to_vec())),
            Form::Whole(body) => {
                items.extend(read_response(self.protocol, &body).unwrap_or_default())
            }
            Form::Unknown | Form::TooLong => {}
        }
        items.extend(data.iter().flat_map(|data| self.push_message(data)));
        items.extend(self.stream.finish());
        items
    }

    fn event(&mut self, event: &Map<String, Value>) -> Vec<Item> {
        match &mut self.stream {
            Stream::Anthropic(stream) => stream.event(event),
            Stream::Responses(stream) => stream.event(event),
            Stream::Chat(stream) => stream.event(event),
            Stream::Gemini(stream) => stream.event(event),
        }
    }
}

impl Stream {
    fn finish(&mut self) -> Vec<Item> {
        match self {
            Self::Anthropic(stream) => stream.finish(),
            Self::Responses(_) => Vec::new(),
            Self::Chat(stream) => stream.finish(),
            Self::Gemini(stream) => stream.finish(),
        }
    }
}

fn read_object(protocol: Protocol, body: &Map<String, Value>) -> Vec<Item> {
    match protocol {
        Protocol::AnthropicMessages => anthropic::read_response(body),
        Protocol::OpenAiResponses => openai_responses::read_response(body),
        Protocol::OpenAiChat => openai_chat::read_response(body),
        Protocol::Gemini => gemini::read_response(body),
    }
}
