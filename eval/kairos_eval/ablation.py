"""What each form of derivation and each typed release gains: taken out one at a time, everything else as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .measure import Results, measure, recorded_cases
from .metrics import summaries
from .policies import FILES, Policies, rules_of
from .records import Record
from .stdio import Kairos

DERIVE = ("below", "substring", "url-form", "dates", "numbers", "lists", "composed", "words")

Line = dict[str, float | int | str | None]


def ablate(kairos: Kairos, folder: Path, records: list[Record], name: str, say: Callable[[str], None]) -> list[Line]:
    """One line for every rule, with the difference that its absence makes, in points."""
    base_policies = Policies(folder, label=f"{name}-base-")
    base_policies.enforce(kairos)
    base = measure(f"{name}-base", recorded_cases(records, base_policies), "strict", kairos, {})
    lines: list[Line] = [_line("everything on", "", base, base)]
    used = sorted({FILES[record.suite] for record in records})
    variants = [("derive", rule, set(used)) for rule in DERIVE]
    typed: dict[str, set[str]] = {}
    for file in used:
        for rule in rules_of(base_policies.texts[file]):
            typed.setdefault(rule, set()).add(file)
    variants += [("typed", rule, files) for rule, files in typed.items()]
    for number, (what, rule, files) in enumerate(variants):
        policies = Policies(folder, label=f"{name}-{number}-", without={what: rule})
        policies.enforce(kairos, files)
        touched = [record for record in records if FILES[record.suite] in files]
        fresh = measure(f"{name}-{number}", recorded_cases(touched, policies), "strict", kairos, {})
        # Suites whose policy has no such rule stay as they were.
        suites = {record.suite for record in touched}
        fresh.rows += [row for row in base.rows if row["suite"] not in suites]
        lines.append(_line(rule, what, fresh, base))
        say(f"{name}: without {rule}: {lines[-1]['utility']:+.1f}")
    return lines


def _line(rule: str, what: str, fresh: Results, base: Results) -> Line:
    new, old = summaries(fresh.rows)[0].mean, summaries(base.rows)[0].mean
    first = fresh is base

    def delta(key: str) -> float | None:
        now, then = getattr(new, key), getattr(old, key)
        if now is None or then is None:
            return None
        return round(now if first else now - then, 2)

    return {"rule": rule, "what": what, "utility": delta("utility"), "attacked": delta("attacked"), "success": delta("success"), "effects": new.effect_count}


def table(title: str, lines: list[Line]) -> str:
    """Markdown, the greatest gain first."""
    first, *rest = lines
    rows = [f"| {first['rule']} | | {first['utility']:.1f} | {first['attacked']:.1f} | {first['success']:.1f} | {first['effects']} |"]
    for line in sorted(rest, key=lambda line: (line["utility"], line["attacked"], str(line["rule"]))):
        kind = {"derive": "form of derivation", "typed": "typed release"}[str(line["what"])]
        rows.append(f"| {line['rule']} | {kind} | {line['utility']:+.1f} | {line['attacked']:+.1f} | {line['success']:+.1f} | {line['effects']} |")
    head = "| taken out | | U_b | U | ASR | attacks by effect |\n|---|---|---|---|---|---|\n"
    return f"## {title}\n\nStrict; differences in points of the mean over suites when one rule is taken out.\n\n{head}" + "\n".join(rows) + "\n"
