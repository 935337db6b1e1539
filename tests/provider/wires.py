"""The four provider protocols: how a request is read, how an answer is written.

Each wire has `match` (is this path mine), `parse` (tools offered, events so far, streaming wanted) and `emit` (the answer, whole
or as server-sent events). A decision is ("text", words) or ("call", tool, arguments, step).
"""
import json
import time

from script import Tool


def text_of(x):
    if x is None:
        return ""
    if isinstance(x, str):
        return x
    if isinstance(x, list):
        return "\n".join(text_of(i) for i in x)
    if isinstance(x, dict):
        for k in ("text", "content", "output", "response", "result"):
            if k in x:
                return text_of(x[k])
        return json.dumps(x)
    return str(x)


def example_of(s):
    """a small JSON value that satisfies a JSON schema (for requests that ask for JSON output)"""
    for k in ("anyOf", "oneOf"):
        if s.get(k):
            return example_of(s[k][0])
    if "const" in s:
        return s["const"]
    if s.get("enum"):
        return s["enum"][0]
    t = str(s.get("type", "object")).lower()
    if t == "object":
        return {k: example_of(v) for k, v in (s.get("properties") or {}).items()}
    if t == "array":
        return [example_of(s.get("items") or {"type": "string"})]
    return {"integer": 1, "number": 1, "boolean": True, "null": None}.get(t, "scripted")


def wanted_schema(b):
    """the JSON schema the reply has to satisfy, if the request asks for one (any of the four wires)"""
    g = (b.get("request", b)).get("generationConfig") or {}
    rf = b.get("response_format") or {}
    return (g.get("responseJsonSchema") or g.get("responseSchema") or (rf.get("json_schema") or {}).get("schema")
            or ((b.get("text") or {}).get("format") or {}).get("schema")
            or ((b.get("output_config") or {}).get("format") or {}).get("schema"))


def sse(obj, event=None):
    return (("event: %s\n" % event) if event else "") + "data: " + (obj if isinstance(obj, str) else json.dumps(obj)) + "\n\n"


class Responses:
    name = "openai-responses"

    @staticmethod
    def match(p):
        return p.endswith("/responses")

    @staticmethod
    def parse(b):
        tools = []
        def add(t, ns=None):
            if t.get("type") == "function":
                tools.append(Tool(t["name"], t.get("parameters"), namespace=ns))
            elif t.get("type") == "custom":
                tools.append(Tool(t["name"], freeform=True, namespace=ns))
            elif t.get("type") == "local_shell":
                tools.append(Tool("local_shell", {"properties": {"command": {"type": "array"}}}))
            elif t.get("type") == "namespace":
                for s in t.get("tools", []):
                    add(s, t["name"])
        for t in b.get("tools") or []:
            add(t)
        ev = [("system", text_of(b.get("instructions")))]
        inp = b.get("input")
        for it in (inp if isinstance(inp, list) else [{"role": "user", "content": inp}]):
            if it.get("type") == "additional_tools":      # Codex 0.17x: tools ride in the input
                for t in it.get("tools") or []:
                    add(t)
            elif it.get("type", "").endswith("_output"):
                ev.append(("result", text_of(it.get("output"))))
            elif it.get("role"):
                ev.append((it["role"], text_of(it.get("content"))))
        return tools, ev, bool(b.get("stream"))

    @staticmethod
    def emit(b, d, n, stream):
        rid = "resp_%d" % n
        if d[0] == "text":
            item = {"id": "msg_%d" % n, "type": "message", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": d[1], "annotations": []}]}
        elif d[1].name == "local_shell":
            item = {"id": "lsh_%d" % n, "type": "local_shell_call", "status": "completed", "call_id": "call_%d" % n,
                    "action": {"type": "exec", "command": d[2]["command"], "env": {}}}
        elif d[1].freeform:
            item = {"id": "ctc_%d" % n, "type": "custom_tool_call", "status": "completed", "call_id": "call_%d" % n,
                    "name": d[1].name, "input": d[2]}
        else:
            item = {"id": "fc_%d" % n, "type": "function_call", "status": "completed", "call_id": "call_%d" % n,
                    "name": d[1].name, "arguments": json.dumps(d[2])}
        if d[0] != "text" and d[1].namespace:
            item["namespace"] = d[1].namespace
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
                 "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        base = {"id": rid, "object": "response", "created_at": int(time.time()), "model": b.get("model", "scripted"),
                "status": "in_progress", "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
                "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "usage": None}
        done = {**base, "status": "completed", "output": [item], "usage": usage}
        if not stream:
            return json.dumps(done)
        out, seq = [], [0]
        def ev(t, **kw):
            out.append(sse({"type": t, "sequence_number": seq[0], **kw}, t))
            seq[0] += 1
        ev("response.created", response=base)
        ev("response.in_progress", response=base)
        if item["type"] == "message":
            ev("response.output_item.added", output_index=0, item={**item, "content": [], "status": "in_progress"})
            ev("response.content_part.added", item_id=item["id"], output_index=0, content_index=0, part={"type": "output_text", "text": "", "annotations": []})
            ev("response.output_text.delta", item_id=item["id"], output_index=0, content_index=0, delta=d[1])
            ev("response.output_text.done", item_id=item["id"], output_index=0, content_index=0, text=d[1])
            ev("response.content_part.done", item_id=item["id"], output_index=0, content_index=0, part=item["content"][0])
        elif item["type"] == "function_call":
            ev("response.output_item.added", output_index=0, item={**item, "arguments": "", "status": "in_progress"})
            ev("response.function_call_arguments.delta", item_id=item["id"], output_index=0, delta=item["arguments"])
            ev("response.function_call_arguments.done", item_id=item["id"], output_index=0, arguments=item["arguments"])
        else:
            ev("response.output_item.added", output_index=0, item={**item, "status": "in_progress"})
        ev("response.output_item.done", output_index=0, item=item)
        ev("response.completed", response=done)
        return out


class Chat:
    name = "openai-chat"

    @staticmethod
    def match(p):
        return p.endswith("/chat/completions")

    @staticmethod
    def parse(b):
        tools = [Tool(t["function"]["name"], t["function"].get("parameters")) for t in b.get("tools") or [] if t.get("type") == "function"]
        ev = [("result" if m.get("role") == "tool" else m.get("role"), text_of(m.get("content"))) for m in b.get("messages", [])]
        return tools, ev, bool(b.get("stream"))

    @staticmethod
    def emit(b, d, n, stream):
        cid, model, t = "chatcmpl-%d" % n, b.get("model", "scripted"), int(time.time())
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if d[0] == "text":
            msg, fin = {"role": "assistant", "content": d[1]}, "stop"
        else:
            msg = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_%d" % n, "type": "function", "index": 0,
                   "function": {"name": d[1].name, "arguments": json.dumps(d[2])}}]}
            fin = "tool_calls"
        if not stream:
            return json.dumps({"id": cid, "object": "chat.completion", "created": t, "model": model, "usage": usage,
                               "choices": [{"index": 0, "message": msg, "finish_reason": fin}]})
        def ch(delta, f=None, **kw):
            return sse({"id": cid, "object": "chat.completion.chunk", "created": t, "model": model,
                        "choices": [{"index": 0, "delta": delta, "finish_reason": f}], **kw})
        return [ch({"role": "assistant", "content": ""}), ch({k: v for k, v in msg.items() if k != "role" and v is not None}), ch({}, fin),
                sse({"id": cid, "object": "chat.completion.chunk", "created": t, "model": model, "choices": [], "usage": usage}), sse("[DONE]")]


class Anthropic:
    name = "anthropic-messages"

    @staticmethod
    def match(p):
        return p.endswith("/messages")

    @staticmethod
    def parse(b):
        tools = [Tool(t["name"], t.get("input_schema")) for t in b.get("tools") or [] if "name" in t]
        ev = [("system", text_of(b.get("system")))]
        for m in b.get("messages", []):
            c = m.get("content")
            for p in (c if isinstance(c, list) else [{"type": "text", "text": c}]):
                ev.append(("result", text_of(p.get("content"))) if p.get("type") == "tool_result" else (m.get("role"), text_of(p)))
        return tools, ev, bool(b.get("stream"))

    @staticmethod
    def emit(b, d, n, stream):
        if d[0] == "text":
            blk, stop = {"type": "text", "text": d[1]}, "end_turn"
        else:
            blk, stop = {"type": "tool_use", "id": "toolu_%d" % n, "name": d[1].name, "input": d[2]}, "tool_use"
        msg = {"id": "msg_%d" % n, "type": "message", "role": "assistant", "model": b.get("model", "scripted"), "content": [blk],
               "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}
        if not stream:
            return json.dumps(msg)
        e = lambda o: sse(o, o["type"])
        out = [e({"type": "message_start", "message": {**msg, "content": [], "stop_reason": None}})]
        if blk["type"] == "text":
            out += [e({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                    e({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": d[1]}})]
        else:
            out += [e({"type": "content_block_start", "index": 0, "content_block": {**blk, "input": {}}}),
                    e({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(d[2])}})]
        return out + [e({"type": "content_block_stop", "index": 0}),
                      e({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}}),
                      e({"type": "message_stop"})]


class Gemini:
    name = "gemini"

    @staticmethod
    def match(p):
        return p.endswith(":streamGenerateContent") or p.endswith(":generateContent")

    @staticmethod
    def parse(b):
        b = b.get("request", b)              # Code Assist wraps it
        tools = []
        for t in b.get("tools") or []:
            for f in t.get("functionDeclarations") or t.get("function_declarations") or []:
                tools.append(Tool(f["name"], f.get("parametersJsonSchema") or f.get("parameters")))
        ev = [("system", text_of((b.get("systemInstruction") or {}).get("parts")))]
        for c in b.get("contents", []):
            for p in c.get("parts", []):
                ev.append(("result", text_of(p["functionResponse"].get("response"))) if "functionResponse" in p else (c.get("role"), text_of(p)))
        return tools, ev, None

    @staticmethod
    def emit(b, d, n, stream):
        if d[0] == "text":
            parts = [{"text": d[1]}]
        else:
            parts = [{"functionCall": {"name": d[1].name, "args": d[2], "id": "fc_%d" % n}}]
        o = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
             "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": "scripted"}
        return [sse(o)] if stream else json.dumps(o)


WIRES = [Responses, Chat, Anthropic, Gemini]
