"""`kairos decide --stdio`: one JSON object a line each way, in order. One process serves many sessions at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Message = dict[str, Any]

EVENTS = ("incoming", "propose", "open", "verdict")
"""What counts as an event: a record the monitor decides about or learns from."""


class KairosError(RuntimeError):
    """Kairos answered with an error, or not at all."""


def find_binary(given: str | None = None) -> str:
    """The `kairos` to measure: as given, `$KAIROS`, the repository's own build, or the one on the path."""
    candidates = [given, os.environ.get("KAIROS")]
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[2] / "target"))
    candidates += [str(target / "release" / "kairos"), str(target / "debug" / "kairos"), shutil.which("kairos")]
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            return candidate
    raise KairosError("no kairos to measure: build it (cargo build --release -p kairos), or name it with --kairos PATH or $KAIROS")


class Kairos:
    """A running `kairos decide --stdio`. `batch` writes many requests and reads as many replies."""

    def __init__(self, binary: str, arguments: Iterable[str] = ("decide", "--stdio")):
        self.command = [binary, *arguments]
        self.events = 0
        self.proposals = 0
        self.seconds = 0.0
        self.policies: dict[str, str] = {}
        self._used = 0.0
        self._fresh_at = 0
        self._errors: list[str] = []
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1 << 20)
        threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True).start()

    def fresh(self) -> None:
        """Goes on in a new process with the same policies, unless this one is new: each configuration is measured from the same start."""
        if self.events == self._fresh_at:
            return
        self._used = self.processor()
        self.close()
        self._start()
        events, seconds = self.events, self.seconds
        self.batch([{"do": "policy", "name": name, "toml": toml} for name, toml in self.policies.items()])
        self.events, self.seconds, self._fresh_at = events, seconds, events

    def _drain(self, stream: Iterable[str]) -> None:
        for line in stream:
            self._errors.append(line.rstrip())
            del self._errors[:-50]

    def __enter__(self) -> Kairos:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; it has nothing left to say."""
        with contextlib.suppress(BrokenPipeError):  # it may have ended before
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def batch(self, messages: list[Message], mistakes: bool = False) -> list[Message]:
        """Sends all, then returns one reply each, in order. A reply with an error raises, unless `mistakes` are to be returned: a harness
        that guesses measures nothing."""
        if not messages:
            return []
        began = time.perf_counter()
        writer = threading.Thread(target=self._write, args=(messages,))
        writer.start()
        replies = []
        wrong = None
        for message in messages:
            line = self.process.stdout.readline()
            if not line:
                writer.join(timeout=1)
                raise KairosError(f"{' '.join(self.command)} ended: {' / '.join(self._errors[-5:]) or 'without a word'}")
            reply = json.loads(line)
            if "error" in reply and not mistakes:
                wrong = wrong or f"{_short(message)}: {_words(reply['error'])}"
            replies.append(reply)
        writer.join()
        if wrong:  # told when all replies are read, so that the next batch reads its own
            raise KairosError(wrong)
        self.seconds += time.perf_counter() - began
        self.events += sum(message["do"] in EVENTS for message in messages)
        self.proposals += sum(message["do"] == "propose" for message in messages)
        return replies

    def _write(self, messages: list[Message]) -> None:
        try:
            for message in messages:
                self.process.stdin.write(json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str) + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the reader tells

    def ask(self, message: Message) -> Message:
        """One request, one reply."""
        return self.batch([message])[0]

    def policy(self, name: str, toml: str) -> str:
        """Puts a policy in force under a name; returns its epoch."""
        self.policies[name] = toml
        return self.ask({"do": "policy", "name": name, "toml": toml}).get("epoch", "")

    @property
    def rate(self) -> float:
        """Events a second over everything sent so far, from the first byte written to the last byte read."""
        return self.events / self.seconds if self.seconds else 0.0

    def processor(self) -> float:
        """Seconds of processor time that Kairos has used: on a busy machine the clock tells more about the others."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return self._used + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return self._used

    def speed(self) -> str:
        """Both, in words."""
        used = self.processor()
        own = f"; {self.events / used:,.0f} a second of its processor time ({used:.1f} s)" if used else ""
        return f"{self.events:,} events ({self.proposals:,} decisions) in {self.seconds:.1f} s: {self.rate:,.0f} a second{own}"


def _short(message: Message) -> str:
    text = json.dumps(message, ensure_ascii=False, default=str)
    return text if len(text) < 300 else text[:300] + "..."


def _words(error: Any) -> str:
    if isinstance(error, dict):
        return " ".join(str(error[part]) for part in ("what", "where", "help") if error.get(part))
    return str(error)
