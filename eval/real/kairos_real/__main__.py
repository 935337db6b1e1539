"""`eval-real`: runs the suite (or a sample), and writes its tables.

    python3 -m kairos_real run [--sample N] [--only WORD] [--results FOLDER] [--kairos PROGRAM] [--workers N] [--again]
    python3 -m kairos_real report [--results FOLDER]
    python3 -m kairos_real list

Results are kept as one JSON object a line; what is there is not run again, so a run that was cut off goes on where it was. A run that
went wrong (the machine was too busy, say) is tried again the next time.
"""
import argparse
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

from . import agents, report
from .cases import KINDS, all_cases, benign_cases
from .outside import ROOT
from .worker import CONFIGURATIONS

RESULTS = os.path.join(ROOT, "docs", "results", "real")


def main():
    parser = argparse.ArgumentParser(prog="eval-real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run cases, then write the report")
    run.add_argument("--sample", type=int, metavar="N", help="only N cases, spread over the suite; results go to a folder of their own, anew each time, unless --results names one")
    run.add_argument("--only", metavar="WORD", action="append", default=[], help="only jobs whose name holds WORD (task/attack/vector/agent/model/configuration); may be repeated")
    run.add_argument("--results", metavar="FOLDER")
    run.add_argument("--kairos", metavar="PROGRAM", default=os.environ.get("KAIROS_BIN"))
    run.add_argument("--workers", type=int, default=2)
    run.add_argument("--again", action="store_true", help="forget what is there")
    told = commands.add_parser("report", help="tables and plot from the results that are there")
    told.add_argument("--results", metavar="FOLDER", default=RESULTS)
    commands.add_parser("list", help="every job, one a line")
    arguments = parser.parse_args()
    if arguments.command == "list":
        for job in jobs():
            print(name(job))
        return 0
    if arguments.command == "report":
        print(report.write(arguments.results))
        return 0
    return run_all(arguments)


def run_all(arguments):
    kairos = arguments.kairos or found()
    folder = arguments.results or (os.path.join(tempfile.gettempdir(), "kairos-real-sample") if arguments.sample or arguments.only else RESULTS)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "results.jsonl")
    if arguments.again or arguments.sample and not arguments.results:
        open(path, "w", encoding="utf-8").close()
    todo = [job for job in jobs() if all(word in name(job) for word in arguments.only)]
    if arguments.sample:
        todo = sampled(todo, arguments.sample)
    todo = [job for job in todo if name(job) not in known(path)]
    about(folder, kairos)
    Crew(kairos, arguments.workers, path).work(todo)
    print(report.write(folder))
    print("raw results: %s" % path)
    return report.verdict(folder)


def jobs():
    """Every run of the suite, the most telling ones first, so that whatever part of it has run covers all tasks and all kinds of attack."""
    benign, attacked = benign_cases(), all_cases()
    rounds = [[case for number, case in enumerate(attacked) if (number // len(KINDS) + number) % len(KINDS) == at] for at in range(len(KINDS))]
    spread = [case for cases in rounds for case in cases]
    parts = [("benign", [case for number, case in enumerate(benign) if number % 4 in (0, 3)], CONFIGURATIONS),
             ("obedient", spread, ["none", "strict"]), ("obedient", spread, ["rule", "perfect", "narrow"]), ("resisting", spread, ["strict", "rule"]),
             ("benign", [case for number, case in enumerate(benign) if number % 4 in (1, 2)], CONFIGURATIONS)]
    return [{"case": case.id, "model": model, "configuration": c} for model, cases, configurations in parts for case in cases for c in configurations]


def sampled(all_jobs, count):
    """The obedient runs of `count` attacked cases and the benign runs of as many tasks, evenly spread."""
    chosen = []
    for model in ("benign", "obedient"):
        cases = list(dict.fromkeys(job["case"] for job in all_jobs if job["model"] == model))
        wanted = {cases[at * len(cases) // count] for at in range(min(count, len(cases)))}
        chosen += [job for job in all_jobs if job["model"] == model and job["case"] in wanted]
    return chosen


def name(job):
    return "%s/%s/%s" % (job["case"], job["model"], job["configuration"])


def known(path):
    try:
        with open(path, encoding="utf-8") as file:
            return {name(result) for result in map(json.loads, file) if "error" not in result}
    except FileNotFoundError:
        return set()


def found():
    """The program under test: what cargo built in this checkout, release before debug."""
    for target in (os.environ.get("CARGO_TARGET_DIR"), os.path.join(ROOT, "target")):
        for profile in ("release", "debug"):
            path = os.path.join(target or "/nonexistent", profile, "kairos")
            if os.access(path, os.X_OK):
                return path
    raise SystemExit("eval-real: no kairos to test: `cargo build --release --package kairos` first, or say --kairos PROGRAM")


def about(folder, kairos):
    """What the results were made with."""
    def said(*words):
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
        return (done.stdout or done.stderr).strip().split("\n")[0]
    with open(kairos, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    facts = {"command": "just eval-real", "kairos": said(kairos, "--version"), "kairos_sha256": digest, "commit": said("git", "rev-parse", "HEAD"),
             "agents": {agent: agents.version(agent) for agent in ("codex", "pi")}, "node": said("node", "--version"), "python": sys.version.split()[0],
             "git": said("git", "--version"), "kernel": os.uname().release, "cores": os.cpu_count()}
    path = os.path.join(folder, "made-with.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")


class Crew:
    """Workers, each in a world of its own, and one file of results."""

    def __init__(self, kairos, count, path):
        self.kairos, self.count, self.path = kairos, count, path
        self.tried = set()             # went wrong once, and are tried once more
        self.lock, self.finished, self.total, self.started = threading.Lock(), 0, 0, time.monotonic()

    def work(self, todo):
        self.total, waiting = len(todo), queue.SimpleQueue()
        for job in todo:
            waiting.put(job)
        if not todo:
            return
        with tempfile.TemporaryDirectory(prefix="kairos-real-", dir="/var/tmp") as folder:
            os.chmod(folder, 0o755)
            threads = [threading.Thread(target=self.one, args=(os.path.join(folder, str(n)), waiting)) for n in range(self.count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        sys.stderr.write("\n")

    def one(self, folder, waiting):
        words = ["unshare", "--net", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"])
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}
        worker = subprocess.Popen([*words, sys.executable, "-m", "kairos_real.worker", folder, os.path.abspath(self.kairos)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env=environment)
        try:
            while True:
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    return
                worker.stdin.write(json.dumps(job) + "\n")
                worker.stdin.flush()
                line = worker.stdout.readline()
                if not line:
                    sys.stderr.write("\neval-real: a worker ended while it ran %s\n" % name(job))
                    return
                result = json.loads(line)
                if "error" in result and name(job) not in self.tried:
                    self.tried.add(name(job))
                    waiting.put(job)
                else:
                    self.keep(result)
        finally:
            worker.stdin.close()
            worker.terminate()
            worker.wait()

    def keep(self, result):
        with self.lock:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            self.finished += 1
            done, width = self.finished / self.total, 30
            left = (time.monotonic() - self.started) / self.finished * (self.total - self.finished)
            sys.stderr.write("\r[%-*s] %d of %d, %d min %02d s left  %-60.60s" % (width, "#" * int(done * width), self.finished, self.total, left // 60, left % 60, name(result)))
            sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
