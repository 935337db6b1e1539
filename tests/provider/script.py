"""The script of a stand-in model: neutral steps, each translated to whichever tool the agent offered.

A script is a JSON file. Its steps:
  {"do":"read","path":P}           read a file (through the shell tool when the agent offers no reader)
  {"do":"sh","cmd":C}              run a shell command
  {"do":"follow","pattern":RE}     obey an instruction found in what the tools returned so far: the first group of RE is run
                                   as a shell command; when it is not there, "else" (a step), or the step is skipped
  {"do":"write","path":P,"content":T}
  {"do":"call","tool":N,"args":{}} a tool by its own name (MCP tools, for instance)
  {"do":"say","text":T}            the final answer
Instead of "steps" the file may have "turns": [{"match": RE, "steps": [...]}, ...] for a session of several user messages:
the last user text that matches a turn's RE opens that turn.
With "replan": {"match": RE, "steps": [...]} the model thinks again: as soon as anything that it is shown matches, it drops what it was
at and takes these steps. Without that it goes on with its own.

The step is chosen by how many tool results the request carries, so the server keeps no state of a session and can serve many
agents at once. Argument names come from each tool's own JSON schema; there is no table per agent.
"""
import json
import os
import re
import shlex

SHELL = ["exec_command", "shell_command", "shell", "local_shell", "Bash", "bash", "run_shell_command",
         "execute_command", "run_command", "run_commands", "run_terminal_command", "terminal", "Shell"]
READ = ["Read", "read", "read_file", "readFile", "view", "view_file", "read_files"]
WRITE = ["Write", "write", "write_file", "writeFile", "write_to_file", "create_file", "create"]
PATHKEYS = ["file_path", "filePath", "absolute_path", "path", "filepath", "target_file", "paths", "files"]
CMDKEYS = ["command", "cmd", "commands", "script"]
TEXTKEYS = ["content", "contents", "text", "file_text", "new_text", "file_content"]


def default_for(schema):
    if "enum" in schema and schema["enum"]:
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    t = schema.get("type")
    if isinstance(t, list):
        t = next((x for x in t if x != "null"), "string")
    t = (t or "string").lower()
    return {"string": "scripted step", "integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}.get(t, "x")


class Tool:
    def __init__(self, name, schema=None, freeform=False, wire_name=None, namespace=None):
        self.name, self.schema, self.freeform = name, schema or {}, freeform
        self.props = (self.schema.get("properties") or {})
        self.required = self.schema.get("required") or []
        self.namespace = namespace


def fill(tool, given):
    for k in tool.required:
        if k not in given:
            given[k] = default_for(tool.props.get(k, {}))
    return given


def keyed(tool, keys):
    return next((k for k in keys if k in tool.props), None)


def shape(tool, key, value, kind):
    """value put the way the schema of that key wants it (string, list of strings, list of objects)."""
    s = tool.props.get(key, {})
    t = s.get("type")
    t = t if isinstance(t, str) else (next((x for x in t if x != "null"), "") if isinstance(t, list) else "")
    if not t and "anyOf" in s:
        t = next((x.get("type", "") for x in s["anyOf"] if x.get("type") != "null"), "")
        s = next((x for x in s["anyOf"] if x.get("type") == t), s)
    if t.lower() == "array":
        it = s.get("items") or {}
        if it.get("type") == "object" or "properties" in it:
            sub = Tool("sub", it)
            k = keyed(sub, PATHKEYS if kind == "path" else CMDKEYS)
            return [fill(sub, {k: value})]
        if kind == "cmd" and not key.endswith("s"):
            return ["bash", "-lc", value]
        return [value]
    return value


def neutral_to_call(step, tools, cwd):
    """-> (tool, args) ; args is a dict, or a str for a freeform tool"""
    by = {t.name: t for t in tools}
    do = step["do"]
    if do == "call":
        t = by.get(step["tool"]) or next((t for t in tools if t.name.endswith(step["tool"])), None) or Tool(step["tool"])
        return t, step.get("args", {})
    absolute = lambda p: p if p.startswith("/") else os.path.join(cwd, p)
    if do == "read":
        for n in READ:
            t = by.get(n)
            k = t and keyed(t, PATHKEYS)
            if k:
                return t, fill(t, {k: shape(t, k, absolute(step["path"]), "path")})
        return neutral_to_call({"do": "sh", "cmd": "cat " + shlex.quote(step["path"])}, tools, cwd)
    if do == "write":
        t = by.get("apply_patch")
        if t and t.freeform:
            body = "".join("+" + l + "\n" for l in step["content"].rstrip("\n").split("\n"))
            return t, "*** Begin Patch\n*** Add File: %s\n%s*** End Patch\n" % (step["path"], body)
        for n in WRITE:
            t = by.get(n)
            if t and keyed(t, PATHKEYS) and keyed(t, TEXTKEYS):
                return t, fill(t, {keyed(t, PATHKEYS): absolute(step["path"]), keyed(t, TEXTKEYS): step["content"]})
        cmd = "printf %s " + shlex.quote(step["content"]) + " > " + shlex.quote(step["path"])
        return neutral_to_call({"do": "sh", "cmd": cmd}, tools, cwd)
    if do == "sh":
        for n in SHELL:
            t = by.get(n)
            k = t and keyed(t, CMDKEYS)
            if k:
                return t, fill(t, {k: shape(t, k, step["cmd"], "cmd")})
        # Codex "code mode": one freeform tool that takes JavaScript
        t = by.get("exec")
        if t and t.freeform:
            return t, "const r = await tools.exec_command({cmd: %s}); text(r.output ?? r);" % json.dumps(step["cmd"])
        raise LookupError("no shell tool among " + ", ".join(by))
    raise LookupError("unknown step " + do)


class Script:
    def __init__(self, path, cwd):
        self.path, self.cwd = path, cwd

    def check(self):
        """Says at the start what is wrong with a script, not in the middle of a session."""
        with open(self.path, encoding="utf-8") as file:
            script = json.load(file)
        plans = script.get("turns", []) + [script[key] for key in ["replan"] if key in script]
        for step in script.get("steps", []) + [step for plan in plans for step in plan["steps"]]:
            if step.get("do") not in ("read", "sh", "follow", "write", "call", "say"):
                raise SystemExit("provider: %s: unknown step %s; known: read sh follow write call say" % (self.path, json.dumps(step)))

    def decide(self, tools, events):
        """-> ("text", str) | ("call", tool, args, step)"""
        if not tools:
            return ("text", "scripted title")
        conf = json.load(open(self.path))
        steps, cwd, start = conf.get("steps", []), self.cwd or conf.get("cwd") or os.getcwd(), 0
        for i, (role, text) in enumerate(events):        # {"turns":[{"match":RE,"steps":[..]},..]}: the last user text that matches opens its turn
            for turn in conf.get("turns", []):
                if role == "user" and re.search(turn["match"], text):
                    steps, start = turn["steps"], i
        replan = conf.get("replan")
        for i, (role, text) in enumerate(events):
            if replan and role != "system" and re.search(replan["match"], text):
                steps, start = replan["steps"], i + 1
                break
        results = [t for r, t in events[start:] if r == "result"]
        prompt = "\n".join(t for r, t in events if r in ("system", "user", "developer"))
        seen, i = len(results), 0
        for step in steps:
            if step["do"] == "follow":
                m = re.search(step["pattern"], "\n".join(results))
                if not m:
                    step = step.get("else")
                    if step is None:
                        continue
                else:
                    step = {"do": "sh", "cmd": m.group(1).strip()}
            if i == seen:
                if step["do"] == "say":
                    if "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in prompt:  # mini-swe-agent ends by this
                        step = {"do": "sh", "cmd": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo " + shlex.quote(step["text"])}
                    else:
                        for n in ("attempt_completion", "submit_and_exit", "task_complete"):
                            t = next((t for t in tools if t.name == n), None)
                            if t:
                                k = keyed(t, ["result", "summary", "text", "message"])
                                return ("call", t, fill(t, {k: step["text"]} if k else {}), step)
                        return ("text", step["text"])
                tool, args = neutral_to_call(step, tools, cwd)
                return ("call", tool, args, step)
            i += 1
        return ("text", "done")
