"""What Kairos is compared with, in the same harness and with the same counterfactuals.

The framework's own defences need a model that runs while the agent runs (`tool_filter`, `repeat_user_prompt`, `spotlighting_with_delimiting`
change what the model reads; `transformers_pi_detector` is a model), so they cannot be applied to a run that is already recorded, nor to an agent that
is not a model. With a key, `--agent live --defence NAME` runs them. What stands here needs none:

- `none`: every call happens.
- `no-effects`: only reads happen.
- `perfect-tool-filter`: only tools that the user task's own ground truth uses; the upper bound of any filter that picks tools from the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from .agents import Obedient, Recorded
from .benchmark import Benchmark
from .executor import Case, Decision, Finished
from .records import Call

NAMES = ("none", "no-effects", "perfect-tool-filter")


def run(cases: Iterable[Case], name: str) -> Iterator[Finished]:
    """Runs all cases under a baseline."""
    if name not in NAMES:
        raise ValueError(f"no baseline {name!r}; there are {', '.join(NAMES)}")
    for case in cases:
        decisions = []
        while turn := case.agent.turn():
            for call in turn:
                released = allows(name, case, call)
                if released:
                    case.agent.act(call)
                decisions.append(Decision(call, released, "policy" if released else name, []))
        yield Finished(case, decisions, case.agent.outcome())


def allows(name: str, case: Case, call: Call) -> bool:
    if name == "none" or call.effect == "read":
        return True
    if name == "no-effects":
        return False
    agent = case.agent
    suites = agent.benchmark if isinstance(agent, Recorded | Obedient) else None
    return suites is not None and call.tool in _needed(suites, case.suite, case.user_task)


@lru_cache(maxsize=None)
def _needed(suites: Benchmark, suite: str, user_task: str) -> frozenset[str]:
    task = suites.suites[suite].get_user_task_by_id(user_task)
    return frozenset(call.function for call in suites.ground_truth(suite, task))
