"""The policies in force: one for each suite, the same with and without attacks; and variants of them with one rule taken out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from .stdio import Kairos

FILES = {
    "banking": "banking", "slack": "slack", "travel": "travel", "workspace": "workspace",
    "shopping": "agentdyn", "github": "agentdyn", "dailylife": "agentdyn",
}  # fmt: skip


def default_folder() -> Path:
    """The repository's own."""
    return Path(__file__).resolve().parents[2] / "policies" / "eval"


@dataclass
class Policies:
    """A folder of policies, put in force in one Kairos under a label of their own."""

    folder: Path
    label: str = ""
    without: dict[str, str] = field(default_factory=dict)
    """What is taken out: {"derive": NAME} or {"typed": NAME}."""
    texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in sorted(set(FILES.values())):
            path = self.folder / f"{name}.toml"
            if path.is_file():
                self.texts[name] = variant(path.read_text(encoding="utf-8"), self.without)
        if not self.texts:
            raise FileNotFoundError(f"{self.folder}: holds no policy of a suite ({', '.join(sorted(set(FILES.values())))}.toml)")

    def of(self, suite: str) -> str:
        """The name under which a suite's policy is in force."""
        return f"{self.label}{FILES[suite]}"

    def enforce(self, kairos: Kairos, only: set[str] | None = None) -> dict[str, str]:
        """Puts them in force; returns their epochs."""
        return {name: kairos.policy(f"{self.label}{name}", text) for name, text in self.texts.items() if only is None or name in only}


def rules_of(text: str) -> list[str]:
    """The names of a policy's typed releases, in order, each once."""
    names = [table.get("name", "") for table in tomllib.loads(text).get("typed", [])]
    return list(dict.fromkeys(name for name in names if name))


def variant(text: str, without: dict[str, str]) -> str:
    """A policy without one rule of derivation or one typed release."""
    if "derive" in without:
        rule = f"{without['derive']} = false\n"
        if not re.search(r"(?m)^\[derive\]", text):
            return f"{text}\n[derive]\n{rule}"
        return re.sub(r"(?m)^\[derive\][^\n]*\n", lambda found: found.group(0) + rule, text, count=1)
    if "typed" in without:
        parts = re.split(r"(?m)^(?=\[)", text)
        return "".join(part for part in parts if not (part.startswith("[[typed]]") and f'name = "{without["typed"]}"' in part))
    return text
