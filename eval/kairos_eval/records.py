"""Runs of real models, replayed: the normalised logs, one JSON object a line (plain, `.zst` or `.gz`)."""

from __future__ import annotations

import ast
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
import zstandard

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

FREE_TEXT = {
    "read_file", "get_webpage", "browse_webpage", "click_the_link", "download_file_through_url", "download_file_through_id",
    "view_available_discounts", "get_current_day", "get_balance",
}  # fmt: skip
"""Tools without a known return type whose answer is text and nothing else: never read as structure."""


@dataclass
class Call:
    """One tool call of a run, with what it returned there."""

    tool: str
    arguments: dict[str, Any]
    turn: int
    effect: str = "act"
    text: str = ""
    structure: Any = None
    error: str | None = None
    malicious: bool | None = None
    """Whether the attacker drives it; None when nobody knows."""


@dataclass
class Labels:
    """What re-execution found out about a run."""

    malicious: set[int] = field(default_factory=set)
    attack_cut: list[list[int]] = field(default_factory=list)
    text_only: bool = False
    utility_clean: bool = False
    utility_need: list[int] = field(default_factory=list)


@dataclass
class Record:
    """One run of one model on one case."""

    id: str
    dataset: str
    model: str
    run: int
    suite: str
    user_task: str
    injection_task: str | None
    prompt: str
    injections: dict[str, str]
    calls: list[Call]
    final: str
    utility: bool
    attack: bool
    in_629: bool
    replay_exact: bool
    labels: Labels

    @property
    def benign(self) -> bool:
        return self.injection_task is None


class RecordError(ValueError):
    """A record file that cannot be read; says which line."""


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, decompressed by its ending."""
    if path.suffix == ".zst":
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as plain:
            yield from io.TextIOWrapper(plain, encoding="utf-8")
    elif path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as plain:
            yield from plain
    else:
        with path.open(encoding="utf-8") as plain:
            yield from plain


def load(path: Path, free_text: dict[str, set[str]] | None = None) -> list[Record]:
    """All records of a file. `free_text` names, per suite, the tools whose answer is text without structure."""
    records = []
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            records.append(read(json.loads(line), free_text or {}))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}:{number}: not a run record: {type(error).__name__} {error}") from error
    if not records:
        raise RecordError(f"{path}: holds no record")
    return records


def read(raw: dict[str, Any], free_text: dict[str, set[str]]) -> Record:
    """One record out of its JSON."""
    labels = raw.get("labels") or {}
    malicious = set(labels.get("mal") or [])
    text_tools = free_text.get(raw["suite"], FREE_TEXT)
    calls = []
    for index, event in enumerate(raw["events"]):
        text = event.get("result") or ""
        calls.append(
            Call(
                tool=event["tool"],
                arguments=event.get("args") or {},
                turn=event["turn"],
                effect=event.get("class") or "act",
                text=text,
                structure=None if event.get("error") or event["tool"] in text_tools else structure(text),
                error=event.get("error"),
                malicious=index in malicious if labels else None,
            )
        )
    return Record(
        id=raw["id"],
        dataset=raw.get("dataset", ""),
        model=raw.get("model", ""),
        run=raw.get("run", 1),
        suite=raw["suite"],
        user_task=raw["user_task"],
        injection_task=raw.get("injection_task"),
        prompt=raw["prompt"],
        injections=raw.get("injections") or {},
        calls=calls,
        final=raw.get("final") or "",
        utility=bool(raw.get("utility")),
        attack=bool(raw.get("attack_success")),
        in_629=bool(raw.get("in_629")),
        replay_exact=bool(raw.get("replay_exact")),
        labels=Labels(malicious, labels.get("attack_cut") or [], bool(labels.get("text_only")), bool(labels.get("util_clean")), labels.get("util_need") or []),
    )


@lru_cache(maxsize=1 << 16)
def structure(text: str) -> Any:
    """The structure that the framework wrote out as YAML or as a Python literal; None when it is neither."""
    text = text.strip()
    if not text:
        return None
    if text[0] in "{[":
        try:
            return plain(ast.literal_eval(text))
        except (ValueError, SyntaxError, RecursionError):
            pass
    try:
        found = yaml.load(text, Loader=Loader)
    except yaml.YAMLError:
        return None
    return plain(found) if isinstance(found, dict | list) else None


def plain(value: Any) -> Any:
    """JSON's own types; anything else as its text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
