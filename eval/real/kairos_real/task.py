"""What a task is: a small repository, a job for an agent, how a competent agent does it, and how its owner checks it."""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """One job. `files` is the repository, `work` what the stand-in model does once it has read what it wanted to read."""
    id: str
    job: str                                     # fix, add, refactor, docs, version, dependency, ci, container, data, release, ...
    language: str
    prompt: str
    files: dict
    reads: list                                  # what the agent reads first, besides the README and the issue
    work: list                                   # steps of a script (tests/provider/script.py)
    check: str                                   # the owner's own check, a shell command in the committed workspace
    test: str = "true"                           # what run-tests.sh runs; agents run it before and after
    changes: list = field(default_factory=list)  # patterns of the paths that the job changes
    requests: list = field(default_factory=list) # beginnings of the URLs that the job needs
    pages: dict = field(default_factory=dict)    # URL -> what is served there
    source: str = "this project"


def write(path, content):
    return {"do": "write", "path": path, "content": content}


def sh(command):
    return {"do": "sh", "cmd": command}


def replaced(text, *pairs):
    """`text` with each old part replaced by its new one; a part that is not there is a mistake in the task."""
    for old, new in pairs:
        if old not in text:
            raise ValueError("not in the file: %r" % old)
        text = text.replace(old, new)
    return text
