"""Carries events between agents and Kairos. Many cases go side by side through one process: each turn of all of them is one batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .agents import Agent, Outcome
from .benchmark import Result
from .oracles import Oracle, Seen, Situation
from .records import Call
from .stdio import Kairos, Message

_sessions = itertools.count(1)

AT_ONCE = 200
"""Cases in flight; each is a session with its own state."""


@dataclass
class Case:
    """One run to be measured."""

    id: str
    suite: str
    policy: str
    task: str
    user_task: str
    injection_task: str | None
    agent: Agent
    model: str = ""
    run: int = 1
    session: str = field(default_factory=lambda: f"s{next(_sessions)}")

    @property
    def benign(self) -> bool:
        return self.injection_task is None


@dataclass
class Decision:
    """What became of one call."""

    call: Call
    released: bool
    by: str
    """`policy`, `rule` (a refusing rule) or the oracle."""
    reasons: list[dict[str, Any]]
    verdict: str = ""
    notice: str = ""
    tokens: int = 0
    seconds: float = 0.0


@dataclass
class Finished:
    """A case with all its decisions and its outcome."""

    case: Case
    decisions: list[Decision]
    outcome: Outcome


@dataclass
class _Running:
    case: Case
    decisions: list[Decision] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    turn: list[Call] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)

    def released(self) -> list[Call]:
        return [decision.call for decision in self.decisions if decision.released]


def run(kairos: Kairos, cases: Iterable[Case], oracle: Oracle, outcomes: bool = True) -> Iterator[Finished]:
    """Runs all cases to their end; without `outcomes`, only what is decided counts."""
    waiting = iter(cases)
    running: list[_Running] = []
    exhausted = False
    while running or not exhausted:
        fresh = []
        while not exhausted and len(running) + len(fresh) < AT_ONCE:
            case = next(waiting, None)
            if case is None:
                exhausted = True
            else:
                fresh.append(_Running(case))
        opening: list[Message] = []
        for one in fresh:
            opening += [{"do": "open", "session": one.case.session, "policy": one.case.policy, "task": one.case.task}]
        kairos.batch(opening)
        running += fresh
        done = []
        for one in running:
            one.turn = one.case.agent.turn()
            if not one.turn:
                done.append(one)
        if done:
            kairos.batch([{"do": "close", "session": one.case.session} for one in done])
            running = [one for one in running if one.turn]
            for one in done:
                yield Finished(one.case, one.decisions, one.case.agent.outcome() if outcomes else Outcome(False, None))
        step(kairos, running, oracle)


def step(kairos: Kairos, running: list[_Running], oracle: Oracle) -> None:
    """One turn of every case: all its calls are proposed before any is carried out, so that they are decided together."""
    proposals = [(one, call) for one in running for call in one.turn]
    replies = kairos.batch([{"do": "propose", "session": one.case.session, "tool": call.tool, "arguments": call.arguments} for one, call in proposals])
    held = [(one.case.session, one.case.task, call, reply, one.seen, one.released()) for (one, call), reply in zip(proposals, replies, strict=True)]
    decisions = decide(kairos, held, oracle)
    tell: list[Message] = []
    for (one, call), reply, decision in zip(proposals, replies, decisions, strict=True):
        one.decisions.append(decision)
        if not decision.released:
            continue
        result = one.case.agent.act(call)
        one.seen.append(Seen(call.tool, call.arguments, result.text, result.structure))
        tell += carried_out(one.case.session, call, reply, result)
    kairos.batch(tell)


def carried_out(session: str, call: Call, reply: Message, result: Result) -> list[Message]:
    """What Kairos is told of a released call: that it happened, and what it answered."""
    told: list[Message] = []
    if reply["decision"] == "release" and call.effect != "read":
        told.append({"do": "done", "session": session, "event": reply["event"], "ok": result.error is None, "what": result.error or "done"})
    answer: Message = {"do": "incoming", "session": session, "source": {"tool": call.tool}, "text": result.error or result.text, "answers": reply["event"]}
    if result.structure is not None and result.error is None:
        answer["json"] = result.structure
    return [*told, answer]


def _reason(reason: dict[str, Any]) -> dict[str, Any]:
    """A reason with the kind of its value beside what it is."""
    if "reason" in reason:
        return reason
    return {**reason, "reason": reason.get("kind"), "kind": reason.get("value_kind", "")}


Held = tuple[str, str, Call, Message, list[Seen], list[Call]]
"""A proposed call with what an oracle may know of its session: session, task, call, reply, what was read, what was released."""


def decide(kairos: Kairos, proposed: list[Held], oracle: Oracle) -> list[Decision]:
    """Policy first; what it deferred goes to the oracle, and the verdict back to Kairos, which alone releases."""
    decisions: list[Decision] = []
    verdicts: list[Message] = []
    held: list[Decision] = []
    for session, task, call, reply, seen, released in proposed:
        reply["reasons"] = [_reason(reason) for reason in reply.get("reasons", [])]
        kind = reply["decision"]
        decision = Decision(call, kind == "release", "rule" if kind == "refuse" else "policy", reply["reasons"])
        decisions.append(decision)
        if kind != "defer":
            continue
        view = kairos.ask({"do": "view", "session": session}).get("view") if oracle.wants_view else None
        verdict = oracle.decide(Situation(task, call, reply, seen, released, view))
        decision.by, decision.verdict, decision.tokens, decision.seconds = oracle.name, verdict.reason, verdict.tokens, verdict.seconds
        held.append(decision)
        verdicts.append({
            "do": "verdict", "session": session, "hold": reply["hold"], "manifest": reply["manifest"],
            "verdict": "release" if verdict.release else "refuse", "oracle": oracle.name, "reason": verdict.reason,
        })  # fmt: skip
    committed: set[tuple[str, str]] = set()
    notices: dict[tuple[str, str], str] = {}
    # A hold that was resolved along with another one before it needs no verdict any more, and Kairos says so.
    for ask, answer in zip(verdicts, kairos.batch(verdicts, mistakes=True), strict=True):
        committed |= {(ask["session"], commit["hold"]) for commit in answer.get("commit", [])}
        notices |= {(ask["session"], abort["hold"]): abort["notice"] for abort in answer.get("abort", [])}
    for decision, ask in zip(held, verdicts, strict=True):
        key = (ask["session"], ask["hold"])
        decision.released, decision.notice = key in committed, notices.get(key, "")
    return decisions
