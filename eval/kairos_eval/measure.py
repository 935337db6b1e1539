"""Configurations: which agent, which policies, which oracle; what comes out is one row a case, kept."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import baselines, oracles
from .agents import Obedient, Recorded
from .benchmark import SUITES, Benchmark, benchmark
from .executor import Case, Decision, Finished, run
from .policies import Policies
from .records import Record, lines, load
from .stdio import Kairos

Row = dict[str, Any]


@dataclass
class Results:
    """One configuration's rows, with how they came about."""

    header: Row
    rows: list[Row] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.header["name"]

    def write(self, folder: Path) -> Path:
        """One JSON object a line, compressed; the first says how the others came about. The same rows give the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.jsonl.gz"
        text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n" for row in (self.header, *self.rows))
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        return path

    @staticmethod
    def read(path: Path) -> Results:
        header, *rows = (json.loads(line) for line in lines(path) if line.strip())
        if header.get("kind") != "results":
            raise ValueError(f"{path}: not a result file: its first line has no \"kind\":\"results\"")
        return Results(header, rows)


def ground_truth_cases(version: str, policies: Policies, suites: tuple[str, ...] = SUITES, benign: bool = True, attacked: bool = True) -> Iterator[Case]:
    """The obedient agent on every user task alone, and on every user task with every injection task."""
    suites_of = benchmark(version)
    if benign:
        for suite in suites:
            for user in suites_of.suites[suite].user_tasks:
                agent = Obedient(suites_of, suite, user)
                yield Case(f"{version}/{suite}/{user}", suite, policies.of(suite), agent.prompt, user, None, agent, "obedient")
    if attacked:
        for suite, user, injection in suites_of.cases(suites):
            agent = Obedient(suites_of, suite, user, injection, suites_of.injections(suite, user, injection))
            yield Case(f"{version}/{suite}/{user}/{injection}", suite, policies.of(suite), agent.prompt, user, injection, agent, "obedient")


def recorded_cases(records: Iterable[Record], policies: Policies) -> Iterator[Case]:
    """Recorded runs. Counterfactuals need records that re-execute exactly; the others are left out."""
    for record in records:
        if not record.replay_exact:
            continue
        # Runs were recorded with suite version v1.2.2, which has all tasks of v1.1.2; checks differ in nothing the records show.
        suites = benchmark(version_of(record)) if record.dataset == "agentdojo" else None
        yield Case(record.id, record.suite, policies.of(record.suite), record.prompt, record.user_task, record.injection_task, Recorded(record, suites), record.model, record.run)


def version_of(record: Record) -> str:
    """The suite version whose checks judge a record."""
    return "v1.2.2"


def free_text() -> dict[str, set[str]]:
    return benchmark("v1.2.2").free_text


def load_records(path: Path) -> list[Record]:
    """Records of a file, read with what the framework says about its tools."""
    return load(path, free_text())


def measure(name: str, cases: Iterable[Case], oracle_name: str, kairos: Kairos | None, about: Row, say: Callable[[str], None] | None = None) -> Results:
    """Runs one configuration. Without a Kairos, `oracle_name` is a baseline's name."""
    began = time.perf_counter()
    if kairos:
        kairos.fresh()
    if kairos is None:
        finished: Iterable[Finished] = baselines.run(cases, oracle_name)
    else:
        finished = run(kairos, cases, oracles.named(oracle_name))
    events, seconds = (kairos.events, kairos.seconds) if kairos else (0, 0.0)
    results = Results({"kind": "results", "name": name, "oracle": oracle_name, "defence": "kairos" if kairos else "baseline", **about})
    for one in finished:
        results.rows.append(row_of(one))
    results.rows.sort(key=lambda row: natural(row["id"]))
    if say:
        speed = f", {(kairos.events - events) / max(kairos.seconds - seconds, 1e-9):,.0f} events/s" if kairos else ""
        say(f"{name}: {len(results.rows)} cases in {time.perf_counter() - began:.1f} s{speed}")
    return results


def row_of(one: Finished) -> Row:
    """What is kept of a case: its outcome, counts, and every call that was not simply released by policy, without any content."""
    outcome = one.outcome
    counts = Counter(_slot(decision) for decision in one.decisions)
    row: Row = {
        "id": one.case.id,
        "suite": one.case.suite,
        "model": one.case.model,
        "utility": outcome.utility,
        "how": outcome.how,
        "counts": dict(sorted(counts.items())),
    }
    if not one.case.benign:
        row["attack"] = outcome.attack
        row["by_text"] = outcome.by_text
    held = [_held(index, decision) for index, decision in enumerate(one.decisions) if decision.by != "policy" or (decision.call.malicious and decision.call.effect != "read")]
    if held:
        row["held"] = held
    tokens = sum(decision.tokens for decision in one.decisions)
    if tokens:
        row["tokens"] = tokens
        row["oracle_s"] = round(sum(decision.seconds for decision in one.decisions), 3)
    return row


def _slot(decision: Decision) -> str:
    whose = "attacker" if decision.call.malicious else "own"
    kind = "read" if decision.call.effect == "read" else "effect"
    if decision.by == "policy":
        return f"{whose} {kind} policy"
    if decision.by == "rule":
        return f"{whose} {kind} forbidden"
    return f"{whose} {kind} {'granted' if decision.released else 'refused'}"


def _held(index: int, decision: Decision) -> Row:
    reasons = sorted({" ".join(str(reason[part]) for part in ("reason", "field", "kind") if reason.get(part)) for reason in decision.reasons})
    row: Row = {"call": index, "tool": decision.call.tool, "by": decision.by, "released": decision.released}
    if decision.call.malicious:
        row["attacker"] = True
    if reasons:
        row["reasons"] = reasons
    return row


def natural(text: str) -> list[Any]:
    """A sorting key that puts user_task_9 before user_task_10."""
    import re

    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def announce(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def suites_for(version: str) -> Benchmark:
    return benchmark(version)
