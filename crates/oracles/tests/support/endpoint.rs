//! An endpoint on the loopback that answers as a test wants, over either wire.
#![allow(dead_code, reason = "every test file uses some of it")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What to answer to a request.
pub(crate) enum Reply {
    /// The model says this.
    Says(String),
    /// This status, with this body.
    Status(u16, String),
    /// Nothing, ever.
    Never,
    /// These bytes.
    Raw(Vec<u8>),
}

pub(crate) struct Endpoint {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Endpoint {
    pub(crate) fn start(reply: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let reply = Arc::new(reply);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                std::thread::spawn(move || {
                    let (path, body) = request(&mut stream);
                    let n = {
                        let mut seen = seen.lock().unwrap();
                        seen.push((path.clone(), body.clone()));
                        seen.len() - 1
                    };
                    let (status, body) = match reply(n, &body) {
                        Reply::Says(text) => (200, answer(&path, &text).to_string()),
                        Reply::Status(status, body) => (status, body),
                        Reply::Raw(bytes) => {
                            let _ = stream.write_all(&bytes);
                            return;
                        }
                        Reply::Never => {
                            std::thread::sleep(std::time::Duration::from_secs(60));
                            return;
                        }
                    };
                    let head = format!(
                        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(head.as_bytes());
                    let _ = stream.write_all(body.as_bytes());
                });
            }
        });
        Self { url, requests }
    }

    /// Paths and bodies so far.
    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

/// The user's message of a request, over either wire.
pub(crate) fn question(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    messages.last().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_string()
}

fn answer(path: &str, text: &str) -> Value {
    if path.ends_with("/messages") {
        json!({"content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
               "usage": {"input_tokens": 1000, "output_tokens": 10}})
    } else {
        json!({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
               "usage": {"prompt_tokens": 1000, "completion_tokens": 10}})
    }
}

fn request(stream: &mut std::net::TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    loop {
        let n = stream.read(&mut piece).unwrap_or(0);
        if n == 0 {
            return (String::new(), Value::Null);
        }
        bytes.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length: usize = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")
                    .map(str::to_owned)
            })
            .map_or(0, |n| n.trim().parse().unwrap());
        if body.len() >= length {
            let path = head.split(' ').nth(1).unwrap_or_default().to_string();
            return (path, serde_json::from_str(body).unwrap_or(Value::Null));
        }
    }
}
