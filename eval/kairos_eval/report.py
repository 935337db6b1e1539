"""Tables and plots out of kept result files: Markdown, HTML with the plots inside, and each plot as an SVG file of its own."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from . import metrics, published
from .measure import Results, natural
from .metrics import Summary

ORDER = ("none", "no-effects", "perfect-tool-filter", "strict", "rules", "perfect")
COLOURS = {"utility": "#2f6f9f", "attacked": "#7fb2d6", "success": "#c0392b", "by_effect": "#7b241c"}
DECIDERS = (("policy", "#2f6f9f", "released by policy"), ("granted", "#7fb2d6", "released by the oracle"), ("refused", "#c0392b", "refused by the oracle"), ("forbidden", "#555555", "refused by a rule"))

Table = tuple[str, list[str], list[list[str]]]


def write(folder: Path, out: Path) -> list[Path]:
    """Reads every result file of a folder; writes the report beside its plots."""
    results = sorted((Results.read(path) for path in folder.glob("*.jsonl*")), key=_order)
    if not results:
        raise FileNotFoundError(f"{folder}: holds no result file (*.jsonl.gz)")
    extra = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.tables.md"))}
    tables, plots = tables_of(results), plots_of(results)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in [("report.md", markdown(results, tables, extra)), ("report.html", page(results, tables, plots)), *((f"{name}.svg", svg) for name, svg in plots)]:
        path = out / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _order(results: Results) -> tuple[Any, ...]:
    header = results.header
    oracle = header["oracle"]
    return (header.get("agent", ""), header.get("set", ""), header.get("policies", ""), ORDER.index(oracle) if oracle in ORDER else len(ORDER), natural(results.name))


def tables_of(results: list[Results]) -> list[Table]:
    """Outcomes per configuration, per suite, and who decided."""
    outcome: list[list[str]] = []
    suites: list[list[str]] = []
    decided: list[list[str]] = []
    for one in results:
        for summary in metrics.summaries(one.rows):
            label = [one.header.get("set", ""), summary.model, one.header.get("policies", ""), one.header["oracle"]]
            outcome.append([*label, *_figures(summary.mean), str(summary.mean.attacks), str(summary.mean.effect_count)])
            suites += [[*label, suite, *_figures(found)] for suite, found in summary.suites.items()]
            if one.header["defence"] == "kairos":
                decided.append([*label, *_decided(summary)])
    head = ["cases", "agent", "policies", "oracle"]
    columns = ["U_b", "U", "ASR", "ASR by effect", "NRP"]
    return [
        ("Outcomes (mean over suites, percent)", [*head, *columns, "attacked cases", "attacks by effect"], outcome),
        ("Per suite (percent)", [*head, "suite", *columns], suites),
        ("Who decided", [*head, "effects by policy, benign", "with reads, benign", "effects by policy, attacked", "with reads, attacked", "own effects refused", "attacker's effects released", "oracle asked", "oracle tokens"], decided),
        ("Published by others (not measured here)", list(published.COLUMNS), [[_cell(value) for value in row] for row in published.ROWS]),
    ]


def _figures(of: metrics.Figures) -> list[str]:
    return [_cell(value) for value in (of.utility, of.attacked, of.success, of.by_effect, of.nrp)]


def _decided(summary: Summary) -> list[str]:
    counts = summary.counts
    shares = [metrics.released_by_policy(counts, when, reads) for when in ("benign", "attacked") for reads in (False, True)]
    own = sum(count for name, count in counts.items() if "own effect" in name and name.endswith(("refused", "forbidden")))
    attacker = sum(count for name, count in counts.items() if "attacker effect" in name and name.endswith(("policy", "granted")))
    return [*(_cell(share) for share in shares), str(own), str(attacker), str(summary.asked), str(summary.tokens)]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def failures(results: list[Results]) -> list[Table]:
    """What went wrong, case by case: attacks that got through, and effects of the task's own that were held back for good."""
    through, lost = [], []
    for one in results:
        if one.header["defence"] != "kairos":
            continue
        for row in one.rows:
            for held in row.get("held", []):
                if held.get("attacker") and held["released"]:
                    through.append([one.name, row["id"], str(held["call"]), held["tool"], held["by"], "reached" if row.get("attack") else "not reached"])
                elif not held.get("attacker") and not held["released"] and "attack" not in row:
                    lost.append([one.name, row["id"], str(held["call"]), held["tool"], "; ".join(held.get("reasons", [])), "lost" if not row["utility"] else "kept"])
    return [
        ("Attackers' effects that were released", ["configuration", "case", "call", "tool", "released by", "goal"], through),
        ("Own effects that were refused, without an attack", ["configuration", "case", "call", "tool", "reason", "utility"], lost),
    ]


def markdown(results: list[Results], tables: list[Table], extra: dict[str, str]) -> str:
    """The report as text."""
    parts = ["# What Kairos stops, and what it costs\n", _provenance(results)]
    parts += [_markdown_table(*table) for table in tables]
    parts += list(extra.values())
    return "\n".join(parts)


def _provenance(results: list[Results]) -> str:
    said = {key: sorted({str(one.header[key]) for one in results if one.header.get(key)}) for key in ("command", "kairos", "agentdojo", "dataset")}
    return "".join(f"- {key}: {', '.join(values)}\n" for key, values in said.items() if values)


def _markdown_table(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = [f"## {title}\n", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def page(results: list[Results], tables: list[Table], plots: list[tuple[str, str]]) -> str:
    """The report as one HTML page that needs nothing else."""
    body = [f"<ul>{''.join(f'<li>{html.escape(line[2:])}</li>' for line in _provenance(results).splitlines())}</ul>"]
    body += [f"<figure>{svg}</figure>" for _, svg in plots]
    body += [_html_table(*table) for table in [*tables, *failures(results)]]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>What Kairos stops, and what it costs</title>\n'
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
        "table{border-collapse:collapse;font-size:13px;margin:1rem 0}th,td{border-bottom:1px solid #ddd;padding:.2rem .6rem;text-align:left}"
        "figure{margin:1rem 0;overflow-x:auto}</style></head><body>\n<h1>What Kairos stops, and what it costs</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _html_table(title: str, head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<h2>{html.escape(title)} ({len(rows)})</h2>\n<table><tr>{cells}</tr>\n{lines}</table>"


def plots_of(results: list[Results]) -> list[tuple[str, str]]:
    """For every set of cases: utility and attack success by oracle, and who decided."""
    groups: dict[tuple[str, str], list[tuple[str, Summary, bool]]] = {}
    for one in results:
        for summary in metrics.summaries(one.rows):
            policies = one.header.get("policies", "")
            label = one.header["oracle"] if policies in ("", "default") else f"{policies}, {one.header['oracle']}"
            groups.setdefault((one.header.get("set", ""), summary.model), []).append((label, summary, one.header["defence"] == "kairos"))
    plots = []
    for (name, model), bars in groups.items():
        slug = "".join(letter if letter.isalnum() else "-" for letter in f"{name}-{model}").strip("-").lower()
        plots.append((f"outcomes-{slug}", bars_svg(f"{name}, {model}: utility and attack success", [(label, summary) for label, summary, _ in bars])))
        decided = [(label, summary) for label, summary, kairos in bars if kairos]
        if decided:
            plots.append((f"decided-{slug}", stacks_svg(f"{name}, {model}: who decided the effects", decided)))
    return plots


def bars_svg(title: str, bars: list[tuple[str, Summary]]) -> str:
    """Four bars a configuration."""
    shown = [("utility", "utility without attack"), ("attacked", "utility under attack"), ("success", "attack success"), ("by_effect", "attack success by an effect")]
    width, step, base = max(120 + 120 * len(bars), 620), 120, 250
    out = [_open(width, 330, title)]
    for tick in range(0, 101, 25):
        y = base - 2 * tick
        out.append(f'<line x1="50" x2="{width - 20}" y1="{y}" y2="{y}" stroke="#ddd"/><text x="42" y="{y + 4}" text-anchor="end">{tick}</text>')
    for index, (label, summary) in enumerate(bars):
        left = 65 + step * index
        for place, (key, _) in enumerate(shown):
            value = getattr(summary.mean, key)
            if value is not None:
                x, y = left + 23 * place, base - 2 * value
                out.append(f'<rect x="{x}" y="{y:.1f}" width="20" height="{2 * value:.1f}" fill="{COLOURS[key]}"/><text x="{x + 10}" y="{y - 3:.1f}" text-anchor="middle" font-size="9">{value:.0f}</text>')
        out.append(f'<text x="{left + 45}" y="{base + 18}" text-anchor="middle">{html.escape(label)}</text>')
    out += [f'<rect x="{60 + 150 * place}" y="290" width="10" height="10" fill="{COLOURS[key]}"/><text x="{74 + 150 * place}" y="299" font-size="10">{words}</text>' for place, (key, words) in enumerate(shown)]
    return "\n".join([*out, "</svg>"])


def stacks_svg(title: str, bars: list[tuple[str, Summary]]) -> str:
    """One stacked bar for benign runs and one for attacked runs of each configuration."""
    rows = [(f"{label}, {when}", _shares(summary.counts, when)) for label, summary in bars for when in ("benign", "attacked")]
    rows = [(label, shares) for label, shares in rows if shares]
    height = 90 + 26 * len(rows)
    out = [_open(820, height, title)]
    for index, (label, shares) in enumerate(rows):
        y, x = 40 + 26 * index, 190.0
        out.append(f'<text x="182" y="{y + 13}" text-anchor="end">{html.escape(label)}</text>')
        for key, colour, _ in DECIDERS:
            share = shares.get(key, 0.0)
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{6 * share:.1f}" height="18" fill="{colour}"/>')
            if share >= 5:
                out.append(f'<text x="{x + 3 * share:.1f}" y="{y + 13}" text-anchor="middle" fill="#fff" font-size="10">{share:.0f} %</text>')
            x += 6 * share
    out += [f'<rect x="{190 + 150 * place}" y="{height - 26}" width="10" height="10" fill="{colour}"/><text x="{204 + 150 * place}" y="{height - 17}" font-size="10">{words}</text>' for place, (_, colour, words) in enumerate(DECIDERS)]
    return "\n".join([*out, "</svg>"])


def _shares(counts: dict[str, int], when: str) -> dict[str, float]:
    found: dict[str, int] = {}
    for name, count in counts.items():
        part = name.split()
        if part[0] == when and part[2] == "effect":
            found[part[3]] = found.get(part[3], 0) + count
    whole = sum(found.values())
    return {key: 100 * count / whole for key, count in found.items()} if whole else {}


def _open(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui,sans-serif" font-size="12" role="img">\n'
        f'<title>{html.escape(title)}</title><rect width="{width}" height="{height}" fill="#fff"/><text x="20" y="22" font-size="14" font-weight="600">{html.escape(title)}</text>'
    )
