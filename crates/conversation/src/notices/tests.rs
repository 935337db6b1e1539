//! Where a notice goes, and where it does not.

use super::{Ledger, insert};
use crate::protocol::Protocol::{self, AnthropicMessages, Gemini, OpenAiChat, OpenAiResponses};
use crate::protocol::{Call, Purpose};

fn with(protocol: Protocol, purpose: Purpose, body: &str, ledger: &mut Ledger) -> Option<String> {
    let call = Call { protocol, purpose };
    insert(call, body.as_bytes(), ledger).map(|out| String::from_utf8(out).unwrap())
}

fn noticed(protocol: Protocol, body: &str) -> Option<String> {
    let mut ledger = Ledger::new();
    ledger.queue("N\"1");
    let out = with(protocol, Purpose::Generate, body, &mut ledger);
    assert_eq!(ledger.waiting(), usize::from(out.is_none()));
    out
}

/// `body` holds `@` where the notice must appear: with its two line feeds inside a string, and in
/// a part of its own or a member otherwise.
#[track_caller]
fn check(protocol: Protocol, body: &str, fragment: &str) {
    let expect = body.replace('@', fragment);
    assert_eq!(noticed(protocol, &body.replace('@', "")), Some(expect));
}

#[track_caller]
fn no_place(protocol: Protocol, body: &str) {
    assert_eq!(noticed(protocol, body), None, "{body}");
}

const TEXT: &str = r#"\n\nN\"1"#;

#[test]
fn the_newest_tool_result() {
    let part = r#",{"type":"text","text":"N\"1"}"#;
    check(
        AnthropicMessages,
        r#"{ "big": 12345678901234567890.10, "messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"one"},{"tool_use_id":"b","content":"two@","type":"tool_result"},{"type":"text","text":"reminder"}]}]}"#,
        TEXT,
    );
    check(
        AnthropicMessages,
        r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"}@]}]}]}"#,
        part,
    );
    check(
        AnthropicMessages,
        r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"@,"is_error":true}]}]}"#,
        r#","content":"N\"1""#,
    );
    check(
        OpenAiResponses,
        r#"{"input":[{"type":"custom_tool_call_output","call_id":"c","output":[ @]}]}"#,
        r#"{"type":"input_text","text":"N\"1"}"#,
    );
    check(
        OpenAiResponses,
        r#"{"type":"response.create","previous_response_id":"r","input":[{"type":"function_call_output","call_id":"c","output":"ok@"}]}"#,
        TEXT,
    );
    check(
        OpenAiResponses,
        r#"{"input":[{"type":"shell_call_output","call_id":"c","output":[{"stdout":"a","stderr":""},{"stdout":"b@","stderr":"e"}]}]}"#,
        TEXT,
    );
    check(
        OpenAiChat,
        r#"{"messages":[{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"x"}@]}]}"#,
        part,
    );
    check(
        OpenAiChat,
        r#"{"messages":[{"role":"tool","tool_call_id":"c","content":"é@"}]}"#,
        TEXT,
    );
    check(
        Gemini,
        r#"{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"x"@}}}]}]}"#,
        r#","notice":"N\"1""#,
    );
    check(
        Gemini,
        r#"{"project":"p","request":{"contents":[{"role":"function","parts":[{"functionResponse":{"name":"f","response":{@}}}]}]}}"#,
        r#""notice":"N\"1""#,
    );
}

#[test]
fn an_empty_content_is_replaced() {
    assert_eq!(
        noticed(
            OpenAiChat,
            r#"{"messages":[{"role":"tool","tool_call_id":"c","content":null}]}"#
        ),
        Some(r#"{"messages":[{"role":"tool","tool_call_id":"c","content":"N\"1"}]}"#.to_owned())
    );
}

#[test]
fn the_newest_user_message_if_it_is_newer() {
    let tools = r#""tools":[{"name":"t"}]"#;
    check(
        AnthropicMessages,
        &format!(r#"{{{tools},"messages":[{{"role":"user","content":"do it@"}}]}}"#),
        TEXT,
    );
    check(
        OpenAiChat,
        &format!(
            r#"{{"messages":[{{"role":"tool","tool_call_id":"c","content":"x"}},{{"role":"assistant","content":"y"}},{{"role":"user","content":[{{"type":"text","text":"z"}}@]}}],{tools}}}"#
        ),
        r#",{"type":"text","text":"N\"1"}"#,
    );
    check(
        OpenAiResponses,
        &format!(r#"{{"input":"do it@",{tools}}}"#),
        TEXT,
    );
    check(
        OpenAiResponses,
        r#"{"input":[{"type":"additional_tools","tools":[{"name":"t"}]},{"role":"user","content":[{"type":"input_text","text":"z"}@]}]}"#,
        r#",{"type":"input_text","text":"N\"1"}"#,
    );
    check(
        Gemini,
        r#"{"tools":[{"functionDeclarations":[{"name":"f"}]}],"contents":[{"parts":[{"text":"z"}@]}]}"#,
        r#",{"text":"N\"1"}"#,
    );
}

#[test]
fn requests_without_a_place_leave_the_notice_waiting() {
    no_place(
        AnthropicMessages,
        r#"{"messages":[{"role":"user","content":"title for: do it"}]}"#,
    );
    no_place(
        OpenAiChat,
        r#"{"tools":[],"messages":[{"role":"user","content":"title"}]}"#,
    );
    no_place(
        Gemini,
        r#"{"tools":[{"googleSearch":{}}],"contents":[{"parts":[{"text":"z"}]}]}"#,
    );
    no_place(
        OpenAiResponses,
        r#"{"tools":[{"name":"t"}],"generate":false,"input":"warm up"}"#,
    );
    no_place(OpenAiResponses, r#"{"type":"response.cancel"}"#);
    no_place(
        OpenAiResponses,
        r#"{"input":[{"type":"computer_call_output","call_id":"c","output":{"type":"x"}}]}"#,
    );
    no_place(
        Gemini,
        r#"{"contents":[{"parts":[{"functionResponse":{"name":"f","response":"text"}}]}]}"#,
    );
    no_place(OpenAiChat, "not json");
    no_place(OpenAiChat, "[1]");
    let result = r#"{"messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}"#;
    for purpose in [Purpose::Count, Purpose::Compact, Purpose::Models] {
        let mut ledger = Ledger::new();
        ledger.queue("n");
        assert_eq!(with(OpenAiChat, purpose, result, &mut ledger), None);
        assert_eq!(ledger.waiting(), 1);
    }
}

#[test]
fn counting_counts_what_was_put_in() {
    let body = r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}]}"#;
    let mut ledger = Ledger::new();
    ledger.queue("n");
    let sent = with(AnthropicMessages, Purpose::Generate, body, &mut ledger);
    assert!(sent.is_some());
    assert_eq!(
        with(AnthropicMessages, Purpose::Count, body, &mut ledger),
        sent
    );
}

#[test]
fn calls_with_the_same_id_are_told_apart() {
    let result =
        |text: &str| format!(r#"{{"role":"tool","tool_call_id":"call_0","content":"{text}"}}"#);
    let body = |results: &[&str]| {
        let results: Vec<String> = results.iter().map(|text| result(text)).collect();
        format!(r#"{{"messages":[{}]}}"#, results.join(","))
    };
    let mut ledger = Ledger::new();
    ledger.queue("n");
    let mut go = |results: &[&str]| {
        with(OpenAiChat, Purpose::Generate, &body(results), &mut ledger).unwrap_or_default()
    };
    let first = body(&["one\\n\\nn"]);
    assert_eq!(go(&["one"]), first);
    assert_eq!(go(&["one", "two"]), body(&["one\\n\\nn", "two"]));
    assert_eq!(
        go(&["one", "two", "one"]),
        body(&["one\\n\\nn", "two", "one"])
    );
    assert_eq!(go(&["two"]), "", "another conversation has no such result");
}

#[test]
fn several_notices_and_blank_ones() {
    let mut ledger = Ledger::new();
    for text in ["first", "  ", "second"] {
        ledger.queue(text);
    }
    let body = r#"{"messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}"#;
    let out = with(OpenAiChat, Purpose::Generate, body, &mut ledger).unwrap();
    assert!(out.contains(r#""x\n\nfirst\n\nsecond""#), "{out}");
    ledger.queue("third");
    let out = with(OpenAiChat, Purpose::Generate, body, &mut ledger).unwrap();
    assert!(out.contains(r#""x\n\nfirst\n\nsecond\n\nthird""#), "{out}");
    assert_eq!(ledger.delivered(), 3);
}
