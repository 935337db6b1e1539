"""`python -m kairos_eval`: one command for everything, and one for each part."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

from . import agents, baselines, live, oracles, report
from .ablation import ablate
from .ablation import table as ablation_table
from .measure import Results, announce, ground_truth_cases, load_records, measure, natural, recorded_cases, row_of
from .policies import Policies, default_folder
from .records import Record, RecordError, lines
from .sentry import table as sentry_table
from .sentry import traces
from .stdio import Kairos, KairosError, find_binary

EXIT_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except (KairosError, RecordError, FileNotFoundError, ValueError) as error:
        print(f"kairos_eval: {error}", file=sys.stderr)
        return EXIT_USAGE


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kairos_eval", description="What Kairos stops, and what it costs.")
    commands = top.add_subparsers(required=True)

    def command(name: str, run, text: str) -> argparse.ArgumentParser:  # noqa: ANN001
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    def common(added: argparse.ArgumentParser) -> None:
        added.add_argument("--kairos", metavar="PATH", help="the program to measure (default: $KAIROS, the repository's build, the path)")
        added.add_argument("--policies", type=Path, default=default_folder(), metavar="DIR", help="policies of the suites")
        added.add_argument("--out", type=Path, default=Path("eval-results"), metavar="DIR", help="where result files go")

    every = command("all", run_all, "everything: obedient and recorded agents, all oracles, baselines, the published reading, ablation, report")
    common(every)
    every.add_argument("--data", type=Path, metavar="DIR", help="folder with records (*.jsonl, .zst, .gz); without it only the obedient agent runs")
    every.add_argument("--records", type=Path, nargs="*", default=[], metavar="FILE", help="more record files")
    every.add_argument("--no-ablation", action="store_true", help="leave out the ablation")
    every.add_argument("--memo", type=Path, metavar="FILE", help="keep the outcomes of re-executions from one call to the next")

    one = command("run", run_one, "one configuration")
    common(one)
    one.add_argument("--agent", choices=("ground-truth", "recorded", "live"), required=True)
    one.add_argument("--oracle", default="strict", help="strict, perfect, rules, model:NAME; or a baseline: " + ", ".join(baselines.NAMES))
    one.add_argument("--version", default="v1.1.2", help="version of the task suites (obedient and live agents)")
    one.add_argument("--records", type=Path, nargs="*", default=[], metavar="FILE", help="records to replay")
    one.add_argument("--model", metavar="NAME", help="the live agent's model; endpoint and key from OPENAI_BASE_URL, OPENAI_API_KEY or ANTHROPIC_API_KEY")
    one.add_argument("--case", action="append", default=[], metavar="ID", help="only these cases of the live agent, for example v1.1.2/banking/user_task_0")

    less = command("ablate", run_ablate, "what each form of derivation and each typed release gains, taken out one at a time")
    common(less)
    less.add_argument("--records", type=Path, nargs="+", metavar="FILE", required=True, help="records to replay")
    less.add_argument("--model", metavar="NAME", help="only records of this model")
    less.add_argument("--only-run", type=int, metavar="N", help="only records of this repetition, when there are several")
    less.add_argument("--memo", type=Path, metavar="FILE", help="keep the outcomes of re-executions from one call to the next")

    rates = command("throughput", run_throughput, "events a second through `kairos decide --stdio`, over a whole replay")
    common(rates)
    rates.add_argument("--records", type=Path, nargs="*", default=[], metavar="FILE", help="records to replay (default: the obedient agent)")

    made = command("report", run_report, "tables and plots, HTML and SVG, from result files")
    made.add_argument("--results", type=Path, default=Path("docs/results/agentdojo"), metavar="DIR", help="folder with result files")
    made.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (default: beside the results)")
    return top


def run_all(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    if options.memo:
        agents.remember(options.memo)
    binary = find_binary(options.kairos)
    options.out.mkdir(parents=True, exist_ok=True)
    for stale in options.out.glob("*.jsonl*"):
        stale.unlink()
    about = provenance(binary)
    paper = options.policies / "paper"

    def keep(name: str, text: str) -> None:
        (options.out / f"{name}.tables.md").write_text(text, encoding="utf-8")

    with Kairos(binary) as kairos:
        default = Policies(options.policies)
        default.enforce(kairos)
        readings = [("default", default)]
        if paper.is_dir():
            readings.append(("paper", Policies(paper, "paper-")))
            readings[1][1].enforce(kairos)

        for version, of in (("v1.1.2", ("none", "strict", "rules", "perfect")), ("v1.2.2", ("none", "strict", "perfect"))):
            for oracle in of:
                results = measure(f"obedient-{version}-{oracle}", ground_truth_cases(version, default), oracle, None if oracle in baselines.NAMES else kairos,
                                  {**about, "agent": "ground-truth", "set": f"AgentDojo {version}, obedient", "policies": "" if oracle in baselines.NAMES else "default"}, announce)  # fmt: skip
                results.write(options.out)
                if oracle == "strict":
                    keep(f"obedient-{version}", obedient_table(results, version))

        replayed: list[tuple[str, list[Record]]] = []
        for path in record_files(options):
            dataset = dataset_of(path)
            if dataset == "agent-sentry":
                keep("sentry", sentry_table(kairos, default, traces(path), announce))
            elif dataset in ("agentdojo", "agentdyn"):
                records = load_records(path)
                for model in sorted({record.model for record in records}):
                    replayed += sets_of(dataset, model, [record for record in records if record.model == model])
            else:
                announce(f"{path.name}: not a run of a suite; passed over")
        for name, records in replayed:
            larger = "949" in name
            for label, policies in readings[:1] if larger else readings:
                of = ("strict", "perfect") if label == "paper" else ("none", "strict", "rules", "perfect", *baselines.NAMES[1:])
                for oracle in of:
                    if oracle == "perfect-tool-filter" and records[0].dataset != "agentdojo":
                        continue
                    baseline = oracle in baselines.NAMES
                    slug = f"recorded-{name}-{label}-{oracle}" if not baseline else f"recorded-{name}-{oracle}"
                    measure(slug.replace(" ", "-"), recorded_cases(records, policies), oracle, None if baseline else kairos,
                            {**about, "agent": "recorded", "set": name, "policies": "" if baseline else label}, announce).write(options.out)  # fmt: skip
            if not options.no_ablation and not larger:
                slug = name.replace(" ", "-")
                keep(f"ablation-{slug}", ablation_table(f"Ablation, {name}", ablate(kairos, options.policies, records, slug, announce)))
        speed = kairos.speed()
        used = kairos.processor()
        each = f", {1e6 * used / kairos.events:,.0f} µs of processor time for each" if used else ""
        keep("throughput", f"## Latency\n\n{speed}{each}, on this machine while it was doing this. The policy decides without a model: no tokens.\n")
    for path in report.write(options.out, options.out / "report"):
        announce(f"wrote {path}")
    announce(f"all of it took {time.perf_counter() - began:.0f} s; {speed}")
    return 0


def record_files(options: argparse.Namespace) -> list[Path]:
    found = list(options.records)
    if options.data:
        if not options.data.is_dir():
            raise FileNotFoundError(f"{options.data}: no such folder; give the folder that holds the record files")
        found += sorted(path for path in options.data.iterdir() if ".jsonl" in path.suffixes)
    return found


def dataset_of(path: Path) -> str:
    return next((json.loads(line).get("dataset", "") for line in lines(path) if line.strip()), "")


def sets_of(dataset: str, model: str, records: list[Record]) -> list[tuple[str, list[Record]]]:
    """The records of one model, by set of cases."""
    if dataset != "agentdojo":
        return [(f"AgentDyn {model}", records)]
    classic = [record for record in records if record.benign or record.in_629]
    sets = [(f"AgentDojo 629 {model}", classic)] if classic else []
    if len(classic) < len(records):
        sets.append((f"AgentDojo 949 {model}", records))
    return sets


def obedient_table(results: Results, version: str) -> str:
    """The obedient agent in one line: what the policy alone lets pass of the tasks, and of the attacks."""
    benign = [row for row in results.rows if "attack" not in row]
    attacked = [row for row in results.rows if "attack" in row]
    whole = sum(not row.get("held") for row in benign)
    passed = sum(any(held.get("attacker") and held["released"] for held in row.get("held", [])) for row in attacked)
    reached = sum(bool(row["attack"]) and not row["by_text"] for row in attacked)
    return (
        f"## Obedient agent, {version}, strict\n\n{whole} of {len(benign)} user tasks released in full without an oracle. Of {len(attacked)} attacked cases, "
        f"{passed} had an effect of the attacker released, and {reached} reached the attacker's goal by an effect.\n"
    )


def run_one(options: argparse.Namespace) -> int:
    baseline = options.oracle in baselines.NAMES
    binary = None if baseline else find_binary(options.kairos)
    policies = Policies(options.policies)
    about = {**provenance(binary), "agent": options.agent, "policies": "" if baseline else options.policies.name}
    kairos = Kairos(binary) if binary else None
    try:
        if kairos:
            policies.enforce(kairos)
        if options.agent == "live":
            if not options.model or not kairos:
                raise ValueError("a live agent needs --model NAME and an oracle that is not a baseline")
            results = Results({"kind": "results", "name": f"live-{options.model}-{options.oracle}".replace("/", "-").replace(":", "-"), "oracle": options.oracle, "defence": "kairos",
                               "set": f"AgentDojo {options.version}, live", **about})  # fmt: skip
            for finished in live.run(kairos, options.model, options.version, policies, oracles.named(options.oracle), options.case):
                results.rows.append(row_of(finished))
                announce(f"{finished.case.id}: utility {finished.outcome.utility}, attack {finished.outcome.attack}")
            results.rows.sort(key=lambda row: natural(row["id"]))
        elif options.agent == "ground-truth":
            results = measure(f"obedient-{options.version}-{options.oracle}", ground_truth_cases(options.version, policies), options.oracle, kairos,
                              {**about, "set": f"AgentDojo {options.version}, obedient"}, announce)  # fmt: skip
        else:
            if not options.records:
                raise ValueError("a recorded agent needs --records FILE")
            records = [record for path in options.records for record in load_records(path)]
            results = measure(f"recorded-{options.oracle}", recorded_cases(records, policies), options.oracle, kairos, {**about, "set": options.records[0].name}, announce)
    finally:
        if kairos:
            kairos.close()
    print(results.write(options.out))
    print(report.markdown([results], report.tables_of([results])[:3], {}))
    return 0


def run_ablate(options: argparse.Namespace) -> int:
    if options.memo:
        agents.remember(options.memo)
    options.out.mkdir(parents=True, exist_ok=True)
    records = [record for path in options.records for record in load_records(path) if options.model in (None, record.model) and options.only_run in (None, record.run)]
    with Kairos(find_binary(options.kairos)) as kairos:
        for model in sorted({record.model for record in records}):
            for name, of in sets_of(records[0].dataset, model, [record for record in records if record.model == model])[:1]:
                slug = name.replace(" ", "-")
                part = f", run {options.only_run} only" if options.only_run else ""
                text = ablation_table(f"Ablation, {name}{part}", ablate(kairos, options.policies, of, slug, announce))
                (options.out / f"ablation-{slug}.tables.md").write_text(text, encoding="utf-8")
                print(text)
    return 0


def run_throughput(options: argparse.Namespace) -> int:
    binary = find_binary(options.kairos)
    policies = Policies(options.policies)
    with Kairos(binary) as kairos:
        policies.enforce(kairos)
        if options.records:
            records = [record for path in options.records for record in load_records(path)]
            cases = recorded_cases(records, policies)
        else:
            cases = ground_truth_cases("v1.1.2", policies)
        for _ in measure_only(kairos, cases):
            pass
        print(kairos.speed())
    return 0


def measure_only(kairos: Kairos, cases):  # noqa: ANN001, ANN201
    """Replays without judging outcomes: only the monitor's time counts."""
    from .executor import run

    return run(kairos, cases, oracles.Strict(), outcomes=False)


def run_report(options: argparse.Namespace) -> int:
    for path in report.write(options.results, options.out or options.results / "report"):
        print(path)
    return 0


def provenance(binary: str | None) -> dict[str, str]:
    """With what a result was made."""
    said = {"agentdojo": importlib.metadata.version("agentdojo"), "python": platform.python_version(), "command": "python -m kairos_eval all --data DIR"}
    if binary:
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        said["kairos"] = version.removeprefix("kairos").strip() or "unknown"
    return said


if __name__ == "__main__":
    sys.exit(main())
