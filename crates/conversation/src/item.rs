//! What a conversation is made of, whatever the protocol.

/// One piece of a conversation, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Text of the system or developer role.
    Instruction(String),
    /// Text of the user role. Agents put much of their own there, so it is not the task.
    User(String),
    /// What the model says.
    Narration(String),
    /// What the model thinks, as far as it is shown.
    Reasoning(String),
    /// A tool that the model wants called.
    ToolCall {
        /// Ties the result to the call; empty where the protocol has none.
        id: String,
        /// The tool, after its name space and a dot if it has one.
        name: String,
        /// JSON, or free text for a free-form tool.
        arguments: String,
    },
    /// What the tool gave back.
    ToolResult {
        /// The call's id, or the tool's name where the protocol has no ids.
        id: String,
        /// Its text parts, one a line.
        text: String,
    },
}

/// A request for the model's next turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The model's name, where the body has it.
    pub model: Option<String>,
    /// The conversation. With `previous` set, only what is new in it.
    pub items: Vec<Item>,
    /// The names of the tools that the agent offers.
    pub tools: Vec<String>,
    /// Whether the answer is asked for as a stream.
    pub stream: bool,
    /// The response that this one continues, when the provider keeps the conversation.
    pub previous: Option<String>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not JSON.
    #[error("the body is not JSON: {0}; it is treated as a message without a conversation")]
    Json(#[from] serde_json::Error),
    /// JSON, but no object.
    #[error(
        "the body is JSON but not an object; it is treated as a message without a conversation"
    )]
    NotAnObject,
}
