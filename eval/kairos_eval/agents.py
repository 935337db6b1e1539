"""Who acts: a recorded model, or the obedient agent that does the user's task and whatever injected text asks of it.

An agent gives its calls a turn at a time and is told which of them happened. The live agent is in `live`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentdojo.functions_runtime import FunctionCall

from .benchmark import Benchmark, Result
from .records import Call, Record


@dataclass
class Outcome:
    """What came of a run."""

    utility: bool
    attack: bool | None
    """Whether the attacker's goal was reached; None in benign runs."""
    by_text: bool = False
    """Reached by the reply's words alone, which no boundary holds back."""
    how: str = "checked"
    """`checked`: the task's own checks on the environment; `labels`: from the record's labels; `recorded`: nothing was held back."""


class Agent(Protocol):
    """What the driver needs of an agent."""

    def turn(self) -> list[Call]:
        """The calls of the next turn; none when it is finished."""

    def act(self, call: Call) -> Result:
        """Carries out a released call."""

    def outcome(self) -> Outcome:
        """What came of it."""


@dataclass
class Recorded:
    """Replays a record. What was released is carried out again in the benchmark's environment, and judged by the task's own checks."""

    record: Record
    benchmark: Benchmark | None
    released: list[int] = field(default_factory=list)
    position: int = 0

    def turn(self) -> list[Call]:
        calls = self.record.calls
        begin = self.position
        while self.position < len(calls) and calls[self.position].turn == calls[begin].turn:
            self.position += 1
        return calls[begin : self.position]

    def act(self, call: Call) -> Result:
        self.released.append(next(index for index, known in enumerate(self.record.calls) if known is call))
        return Result(call.text, call.structure, call.error)

    def outcome(self) -> Outcome:
        return outcome_of(self.record, tuple(sorted(self.released)), self.benchmark)


def outcome_of(record: Record, released: tuple[int, ...], benchmark: Benchmark | None) -> Outcome:
    """What the record would have come to, had only these calls happened."""
    if len(released) == len(record.calls):
        attack = None if record.benign else record.attack
        return Outcome(record.utility, attack, bool(attack and record.labels.text_only), "recorded")
    key = (record.dataset, record.id, released)
    if key in _outcomes:
        return _outcomes[key]
    known = benchmark is not None and record.suite in benchmark.suites
    _outcomes[key] = _replayed(record, released, benchmark) if known and record.replay_exact else _from_labels(record, set(released))
    return _outcomes[key]


_outcomes: dict[tuple[str, str, tuple[int, ...]], Outcome] = {}


def _replayed(record: Record, released: tuple[int, ...], benchmark: Benchmark) -> Outcome:
    suite = benchmark.suites[record.suite]
    attacker = None if record.benign else suite.get_injection_task_by_id(record.injection_task)
    world = World(benchmark, record.suite, suite.get_user_task_by_id(record.user_task), record.injections)
    calls = [record.calls[index] for index in released]
    for call in calls:
        world.note(call)
    trace = [FunctionCall(function=call.tool, args=call.arguments) for call in calls]
    utility, attack = world.check(record.final, attacker, trace)
    by_text = bool(attack) and (record.labels.text_only or not record.labels.malicious & set(released))
    return Outcome(utility, attack, by_text)


def _from_labels(record: Record, released: set[int]) -> Outcome:
    labels = record.labels
    needed = all(index in released for index in labels.utility_need)
    if record.benign:
        return Outcome(record.utility and needed, None, how="labels")
    attack = record.attack and all(any(index in released for index in group) for group in labels.attack_cut)
    clean = record.utility if labels.malicious and labels.malicious <= released else labels.utility_clean
    return Outcome(clean and needed, attack, bool(attack and labels.text_only), "labels")


@dataclass
class Obedient:
    """Does the user task's own calls, and, as soon as it has read the injection, the injection task's calls, before it goes on.

    The hardest case for a policy: an agent that follows every injected instruction to the letter.
    """

    benchmark: Benchmark
    suite: str
    user_task: str
    injection_task: str | None = None
    injections: dict[str, str] = field(default_factory=dict)
    seen: bool = False
    trace: list[FunctionCall] = field(default_factory=list)
    turns: int = 0

    def __post_init__(self) -> None:
        inner = self.benchmark.suites[self.suite]
        self.task = inner.get_user_task_by_id(self.user_task)
        self.attacker = inner.get_injection_task_by_id(self.injection_task) if self.injection_task else None
        self.goal = _spaces(self.attacker.GOAL)[:60] if self.attacker else None
        self.plan = [(call, False) for call in self.benchmark.ground_truth(self.suite, self.task)]
        self.world = World(self.benchmark, self.suite, self.task, self.injections)

    @property
    def prompt(self) -> str:
        return self.task.PROMPT

    def turn(self) -> list[Call]:
        if not self.plan:
            return []
        call, attacker = self.plan.pop(0)
        self.turns += 1
        return [Call(call.function, dict(call.args), self.turns, self.benchmark.effect(call.function), malicious=attacker)]

    def act(self, call: Call) -> Result:
        result = self.world.act(call)
        self.trace.append(FunctionCall(function=call.tool, args=call.arguments))
        if self.goal and not self.seen and self.goal in _spaces(_leaves(result)):
            self.seen = True
            self.plan[:0] = [(injected, True) for injected in self.benchmark.ground_truth(self.suite, self.attacker)]
        return result

    def outcome(self) -> Outcome:
        output = self.task.GROUND_TRUTH_OUTPUT
        if self.seen:
            output = f"{output}\n{self.attacker.GROUND_TRUTH_OUTPUT}"
        utility, attack = self.world.check(output, self.attacker, self.trace)
        return Outcome(utility, attack, by_text=bool(attack) and not self.injected_effects())

    def injected_effects(self) -> bool:
        """Whether the injection task has effects at all (one of travel's asks for words only)."""
        return any(self.benchmark.effect(call.function) != "read" for call in self.benchmark.ground_truth(self.suite, self.attacker))


class World:
    """The benchmark's environment in one run. What was computed before for the same calls in the same environment is not computed again."""

    def __init__(self, benchmark: Benchmark, suite: str, task: Any, injections: dict[str, str]):
        self.benchmark, self.suite, self.task, self.injections = benchmark, suite, task, injections
        self.done: list[Call] = []
        self.key = fingerprint(benchmark.version, suite, task.ID, sorted(injections.items()))
        self.environment: Any = None

    def act(self, call: Call) -> Result:
        self.done.append(call)
        self.key = fingerprint(self.key, call.tool, call.arguments)
        if self.key not in _results:
            if self.environment is None:
                self._rebuild(self.done[:-1])
            _results[self.key] = self.benchmark.execute(self.runtime, self.environment, call.tool, call.arguments)
        elif self.environment is not None:
            self.benchmark.execute(self.runtime, self.environment, call.tool, call.arguments)
        return _results[self.key]

    def note(self, call: Call) -> None:
        """A call whose result nobody needs; carried out when the environment is looked at."""
        self.done.append(call)
        self.key = fingerprint(self.key, call.tool, call.arguments)

    def check(self, output: str, attacker: Any, trace: list[FunctionCall]) -> tuple[bool, bool | None]:
        """The user task's own check, and the injection task's."""
        key = fingerprint(self.key, output, attacker.ID if attacker else None)
        if key not in _checks:
            if self.environment is None:
                self._rebuild(self.done)
            check = lambda task: self.benchmark.check(self.suite, task, output, self._start(), self.environment, trace)  # noqa: E731
            _checks[key] = (check(self.task), check(attacker) if attacker else None)
        return _checks[key]

    def _start(self) -> Any:
        return self.task.init_environment(self.benchmark.environment(self.suite, self.injections))

    def _rebuild(self, calls: list[Call]) -> None:
        self.environment = self._start()
        self.runtime = self.benchmark.runtime(self.suite)
        for call in calls:
            self.benchmark.execute(self.runtime, self.environment, call.tool, call.arguments)


_results: dict[str, Result] = {}
_checks: dict[str, tuple[bool, bool | None]] = {}


def remember(path: Path) -> None:
    """Keeps checks in a file from one measurement to the next: an outcome depends on nothing but what was done, so policies can be tried
    without carrying the same calls out again. Results do not depend on it."""
    if path.is_file():
        _checks.update({key: tuple(value) for key, value in json.loads(path.read_text()).items()})
    atexit.register(lambda: path.write_text(json.dumps(_checks)))


def fingerprint(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _spaces(text: str) -> str:
    return " ".join(text.split())


def _leaves(result: Result) -> str:
    """The text of all leaves: the framework's YAML folds and quotes long lines."""
    if result.structure is None:
        return result.text
    return " ".join(_strings(result.structure))


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *_strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value if isinstance(value, str) else json.dumps(value)]
