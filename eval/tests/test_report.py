"""The report: figures worked out by hand, a snapshot, and files that browsers can read."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from kairos_eval import metrics, report
from kairos_eval.__main__ import main
from kairos_eval.measure import Results

HEADER = {"kind": "results", "defence": "kairos", "agent": "recorded", "set": "made", "policies": "default", "kairos": "0.1.0", "agentdojo": "0.1.35", "command": "python -m kairos_eval all"}


def row(suite: str, number: int, utility: bool, attack: bool | None = None, by_text: bool = False, **more) -> dict:
    found = {"id": f"{suite}/{number}", "suite": suite, "model": "m", "utility": utility, "how": "checked", "counts": more.pop("counts", {"own effect policy": 1}), **more}
    return found if attack is None else {**found, "attack": attack, "by_text": by_text}


ROWS = [
    row("a", 1, True), row("a", 2, False, counts={"own effect refused": 1, "own read policy": 3},
        held=[{"call": 3, "tool": "pay", "by": "strict", "released": False, "reasons": ["not-derivable to account"]}]),
    row("a", 3, True, False), row("a", 4, False, True, counts={"attacker effect policy": 1},
        held=[{"call": 0, "tool": "pay", "by": "policy", "released": True, "attacker": True}]),
    row("b", 1, True), row("b", 2, True, True, by_text=True), row("b", 3, True, False),
    row("b", 4, True, False), row("b", 5, False, False),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path) -> Path:
    Results({**HEADER, "name": "made-strict", "oracle": "strict"}, ROWS).write(tmp_path)
    Results({**HEADER, "name": "made-none", "oracle": "none", "defence": "baseline", "policies": ""}, [row("a", 1, True), row("a", 2, True, True)]).write(tmp_path)
    return tmp_path


def test_figures_by_hand():
    (found,) = metrics.summaries(ROWS)
    # U_b: (1 of 2, 1 of 1); U: (1 of 2, 3 of 4); ASR: (1 of 2, 1 of 4); by effect: (1 of 2, 0 of 4).
    assert (found.mean.utility, found.mean.attacked, found.mean.success, found.mean.by_effect) == (75, 62.5, 37.5, 25)
    assert found.mean.nrp == 75 * 0.625 and found.mean.effect_count == 1
    assert metrics.released_by_policy(found.counts, "benign", reads=False) == pytest.approx(100 * 2 / 3)
    assert metrics.released_by_policy(found.counts, "benign", reads=True) == pytest.approx(100 * 5 / 6)


def test_snapshot(folder, here):
    (folder / "more.tables.md").write_text("## More\n\ntext\n")
    assert main(["report", "--results", str(folder), "--out", str(folder / "out")]) == 0
    text = (folder / "out" / "report.md").read_text()
    kept = here / "snapshots" / "report.md"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(text)
    assert text == kept.read_text(), "look at the difference; UPDATE_SNAPSHOTS=1 accepts it"


def test_plots_are_drawings(folder):
    written = report.write(folder, folder / "out")
    drawings = [path for path in written if path.suffix == ".svg"]
    assert len(drawings) == 2
    for path in drawings:
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    page = (folder / "out" / "report.html").read_text()
    assert "<svg" in page and "src=" not in page, "the page needs nothing else"


def test_failures_are_listed(folder):
    through, lost = report.failures([Results.read(path) for path in folder.glob("*.jsonl*")])
    assert through[2] == [["made-strict", "a/4", "0", "pay", "policy", "reached"]]
    assert lost[2] == [["made-strict", "a/2", "3", "pay", "not-derivable to account", "lost"]]


def test_an_empty_folder_is_told(tmp_path, capsys):
    assert main(["report", "--results", str(tmp_path)]) == 2
    assert "holds no result file" in capsys.readouterr().err


def test_results_survive_being_written(folder):
    assert Results.read(folder / "made-strict.jsonl.gz").rows == ROWS
