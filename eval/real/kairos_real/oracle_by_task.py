#!/usr/bin/env python3
"""A deterministic oracle that knows the task's words and nothing else: what the task itself names may happen.

A file change is released when the task names the file (its path, or its name with an ending); a request when the task names its URL
or a URL that it lies below. What carries anything sensitive is refused, and so is everything else.
"""
import json
import re
import sys


def verdict(hold, task):
    thing = hold["object"]
    if hold["carries"] and hold["carries"]["level"] != "public":
        return "refuse", "it carries %s content" % hold["carries"]["level"]
    if thing["kind"] == "location":
        return by_path(thing["path"], task)
    if thing["kind"] == "party":
        return by_url(thing, task)
    return "refuse", "not something that a coding task names"


def by_path(path, task):
    words = {word.lstrip("`'\"([").rstrip("`'\")],.:;") for word in task.split()}
    name = path.rsplit("/", 1)[-1]
    if path in words or "." in name.strip(".") and name in words or path.count("/") == 0 and name in words:
        return "release", "the task names %s" % path
    return "refuse", "the task does not name %s" % path


def by_url(thing, task):
    url = "%s://%s%s%s" % (thing["scheme"], thing["host"], port(thing), thing["path"])
    for named in re.findall(r"https?://[^\s`'\"<>]+", task):
        named = named.rstrip(".,;:)/")
        if url in (named, named + "/") or url.startswith(named + "/"):
            return "release", "the task names %s" % named
    return "refuse", "the task does not name %s" % url


def port(thing):
    return "" if (thing["scheme"], thing["port"]) in (("http", 80), ("https", 443)) else ":%d" % thing["port"]


def main():
    view = json.load(sys.stdin)
    task = "\n".join(view["task"])
    answers = []
    for hold in view["holds"]:
        word, reason = verdict(hold, task)
        answers.append({"hold": hold["id"], "manifest": hold["manifest"], "verdict": word, "reason": reason})
    print(json.dumps({"verdicts": answers}))


if __name__ == "__main__":
    main()
