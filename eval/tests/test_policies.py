"""The suites' policies: what they may hold, and how a rule is taken out."""

from __future__ import annotations

import re
import tomllib

import pytest
from kairos_eval.benchmark import SUITES, benchmark
from kairos_eval.policies import FILES, Policies, default_folder, rules_of, variant

FILES_OF = sorted(default_folder().glob("**/*.toml"))


@pytest.mark.parametrize("path", FILES_OF, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_kairos_takes_it(kairos, path):
    assert re.fullmatch(r"[0-9a-f]{64}", kairos.policy(f"test-{path.parent.name}-{path.stem}", path.read_text()))


@pytest.mark.parametrize("path", FILES_OF, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_forbids_nothing(path):
    """A refusing rule would encode knowledge of the attacks."""
    assert set(tomllib.loads(path.read_text())) <= {"speculation", "derive", "values", "sensitive", "tool", "typed"}


@pytest.mark.parametrize("version", ["v1.1.2", "v1.2.2"])
def test_it_knows_no_attack(version):
    """Nothing that only an injection task says stands in a policy."""
    text = "\n".join(path.read_text().lower() for path in FILES_OF)
    suites = benchmark(version)
    for suite in SUITES:
        asked = " ".join(task.PROMPT for task in suites.suites[suite].user_tasks.values()).lower()
        for task in suites.suites[suite].injection_tasks.values():
            for value in re.findall(r"[\w.+-]+@[\w.-]+\w|[a-z]{2}\d{6,}|www\.[\w./-]+", task.GOAL.lower()):
                assert value in asked or value not in text, value


@pytest.mark.parametrize("suite", SUITES)
def test_every_tool_of_the_suite_is_named(suites, suite):
    policy = tomllib.loads((default_folder() / f"{FILES[suite]}.toml").read_text())
    named = {name for tool in policy["tool"] for name in ([tool["name"]] if isinstance(tool["name"], str) else tool["name"])}
    assert set(suites.tools(suite)) - named == set()


def test_a_form_is_turned_off():
    text = (default_folder() / "slack.toml").read_text()
    assert tomllib.loads(variant(text, {"derive": "substring"}))["derive"] == {"substring": False}


def test_a_release_is_taken_out_and_nothing_else():
    text = (default_folder() / "slack.toml").read_text()
    names = rules_of(text)
    assert "channels" in names
    left = variant(text, {"typed": "channels"})
    assert rules_of(left) == [name for name in names if name != "channels"]
    assert tomllib.loads(left)["tool"] == tomllib.loads(text)["tool"]


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no policy"):
        Policies(tmp_path)
