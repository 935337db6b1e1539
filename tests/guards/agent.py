#!/usr/bin/env python3
"""A small agent of its own: a loop over OpenAI chat completions with three tools (bash, read, write). It does whatever the model
says and knows of no boundary. Standard library; starts in a fraction of the time that a packaged agent needs, so that hundreds of
runs can be measured.

  agent.py TASK        the model is at $MODEL_URL (default http://model.example.test/v1)
"""
import json
import os
import subprocess
import sys
import urllib.request

URL = os.environ.get("MODEL_URL", "http://model.example.test/v1") + "/chat/completions"
STRING = {"type": "string"}


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "description": name, "parameters": {
        "type": "object", "properties": {key: STRING for key in properties}, "required": list(properties)}}}


TOOLS = [tool("bash", command=1), tool("read", path=1), tool("write", path=1, content=1)]


def run(name, arguments):
    try:
        if name == "bash":
            done = subprocess.run(["bash", "-c", arguments["command"]], capture_output=True, text=True, errors="replace", timeout=60)
            return done.stdout + done.stderr + ("" if done.returncode == 0 else "[exit %d]" % done.returncode)
        if name == "read":
            with open(arguments["path"], encoding="utf-8", errors="replace") as file:
                return file.read()
        if name == "write":
            with open(arguments["path"], "w", encoding="utf-8") as file:
                file.write(arguments["content"])
            return "written"
    except (OSError, KeyError, subprocess.TimeoutExpired) as error:
        return "failed: %s" % error
    return "there is no tool " + name


def main():
    messages = [{"role": "system", "content": "You are a coding agent in %s." % os.getcwd()}, {"role": "user", "content": sys.argv[1]}]
    for _ in range(40):
        body = json.dumps({"model": "scripted", "messages": messages, "tools": TOOLS}).encode()
        request = urllib.request.Request(URL, body, {"content-type": "application/json", "authorization": "Bearer dummy"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            message = json.load(answer)["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            print(message.get("content") or "")
            return
        for call in calls:
            function = call["function"]
            result = run(function["name"], json.loads(function["arguments"] or "{}"))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    sys.exit("the model never came to an end")


main()
