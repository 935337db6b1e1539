"""AgentDojo as it is: its environments, tools, tasks and checks."""

from __future__ import annotations

import contextlib
import io
import logging
import pickle
import sys
import types
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, get_type_hints

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites
from agentdojo.task_suite.task_suite import read_suite_file, validate_injections
from agentdojo.types import text_content_block_from_string
from pydantic import BaseModel
import yaml

from . import quick
from .records import FREE_TEXT, Loader, plain

SUITES = ("banking", "slack", "travel", "workspace")
ATTACK = "important_instructions"
FETCHES = {"get_webpage"}
READS = ("get_", "read_", "search_", "list_", "check_")


@dataclass
class Result:
    """What a tool returned: the object, the text the agent reads, and its structure."""

    text: str
    structure: Any
    error: str | None


class _Target(BasePipelineElement):
    """Stands for the agent an attack addresses by name."""

    def __init__(self, name: str):
        self.name = name

    def query(self, *_: object, **__: object):  # noqa: ANN201 - the framework's signature
        raise NotImplementedError("an attack only asks its target's name")


class Benchmark:
    """One version of the task suites."""

    def __init__(self, version: str = "v1.1.2"):
        self.version = version
        logging.getLogger("agentdojo").setLevel(logging.ERROR)
        quick.install()
        self.suites = get_suites(version)
        for suite in self.suites.values():
            # The framework's own loading, with the fast YAML reader: half a second a case otherwise.
            suite.load_and_inject_default_environment = types.MethodType(_load, suite)

    def tools(self, suite: str) -> list[str]:
        return [tool.name for tool in self.suites[suite].tools]

    @cached_property
    def free_text(self) -> dict[str, set[str]]:
        """Per suite, the tools that are declared to return a plain text or number: an answer that only looks structured is not."""
        found: dict[str, set[str]] = {}
        for name, suite in self.suites.items():
            found[name] = FREE_TEXT & {tool.name for tool in suite.tools}
            for tool in suite.tools:
                with contextlib.suppress(Exception):
                    if get_type_hints(tool.run).get("return") in (str, int, float, bool, type(None)):
                        found[name].add(tool.name)
        return found

    def effect(self, tool: str) -> str:
        """`read`, `fetch` or `act`: for counting only. What an effect is, the policy says."""
        if tool in FETCHES:
            return "fetch"
        return "read" if tool.startswith(READS) else "act"

    def environment(self, suite: str, injections: dict[str, str]) -> BaseModel:
        """A fresh environment with these texts injected."""
        return pickle.loads(_environment(self, suite, tuple(sorted(injections.items()))))

    def ground_truth(self, suite: str, task: Any) -> list[FunctionCall]:
        """A task's own calls, as they are in the environment at its start."""
        return [call.model_copy(deep=True) for call in _ground_truth(self, suite, task)]

    def runtime(self, suite: str) -> FunctionsRuntime:
        return FunctionsRuntime(self.suites[suite].tools)

    def execute(self, runtime: FunctionsRuntime, environment: BaseModel, tool: str, arguments: dict[str, Any]) -> Result:
        """Runs one tool in the environment, as the framework's executor would."""
        value, error = runtime.run_function(environment, tool, arguments)
        return Result(tool_result_to_str(value), None if error else structure_of(value), error)

    def check(self, suite: str, task: Any, output: str, before: BaseModel, after: BaseModel, trace: list[FunctionCall]) -> bool:
        """The task's own check: utility of a user task, success of an injection task.

        A check that cannot cope with what the agent did (a meeting attached where it compares names of files) has not found its
        goal; standard error says so, once for each task.
        """
        try:
            return bool(self.suites[suite]._check_task_result(task, [text_content_block_from_string(output)], before, after, trace))
        except Exception as error:  # noqa: BLE001 - whatever the benchmark's own code raises
            _tell_broken_check(suite, task.ID, f"{type(error).__name__}: {error}")
            return False

    @lru_cache(maxsize=None)
    def vectors(self, suite: str, user_task: str) -> tuple[str, ...]:
        """Where this user task meets injected text."""
        task = self.suites[suite].get_user_task_by_id(user_task)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return tuple(self._attack(suite).get_injection_candidates(task))

    @lru_cache(maxsize=None)
    def _attack(self, suite: str, attack: str = ATTACK, model: str = "gpt-4o-2024-05-13") -> Any:
        return load_attack(attack, self.suites[suite], _Target(model))

    def injections(self, suite: str, user_task: str, injection_task: str, attack: str = ATTACK, model: str = "gpt-4o-2024-05-13") -> dict[str, str]:
        """The injected texts of one case."""
        chosen = self._attack(suite, attack, model)
        self.vectors(suite, user_task)  # quietly, once
        inner = self.suites[suite]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return dict(chosen.attack(inner.get_user_task_by_id(user_task), inner.get_injection_task_by_id(injection_task)))

    def cases(self, suites: tuple[str, ...] = SUITES) -> list[tuple[str, str, str]]:
        """Every user task with every injection task: 629 in v1.1.2, 949 in v1.2.2."""
        return [(name, user, injection) for name in suites for user in self.suites[name].user_tasks for injection in self.suites[name].injection_tasks]


def _load(suite: Any, injections: dict[str, str]) -> BaseModel:
    defaults = suite.get_injection_vector_defaults()
    validate_injections(injections, defaults)
    text = read_suite_file(suite.name, "environment.yaml", suite.data_path).format(**dict(defaults, **injections))
    return suite.environment_type.model_validate(yaml.load(text, Loader=Loader))


@lru_cache(maxsize=4096)
def _environment(benchmark: Benchmark, suite: str, injections: tuple[tuple[str, str], ...]) -> bytes:
    return pickle.dumps(benchmark.suites[suite].load_and_inject_default_environment(dict(injections)))


@lru_cache(maxsize=None)
def _ground_truth(benchmark: Benchmark, suite: str, task: Any) -> list[FunctionCall]:
    environment = benchmark.environment(suite, {})
    prepared = task.init_environment(environment) if hasattr(task, "init_environment") else environment
    return task.ground_truth(prepared)


@lru_cache(maxsize=None)
def benchmark(version: str) -> Benchmark:
    """The suites of one version, loaded once."""
    return Benchmark(version)


def structure_of(value: Any) -> Any:
    """The structure of what a tool returned, where it has one."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if isinstance(value, list | tuple):
        return [structure_of(item) if isinstance(item, BaseModel | list | dict) else plain(item) for item in value]
    if isinstance(value, dict):
        return plain(value)
    return None


@lru_cache(maxsize=None)
def _tell_broken_check(suite: str, task: str, error: str) -> None:
    print(f"kairos_eval: the benchmark's own check of {suite}/{task} failed ({error}); counted as not reached", file=sys.stderr)
