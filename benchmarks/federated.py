"""How fast federated training runs: one script, everything compared within one run.

    python -m benchmarks federated    runs all (some 15 minutes), and stores what it measures
    python -m benchmarks federated --only central,loop,flower,pfl    only these and ours
    python -m benchmarks federated --quick    tiny sizes: shows that everything runs, no more

100 owners with 600 MNIST images each, the CNN of 80,202 parameters, batch 64, one local epoch.
Every contestant is a process of its own, alone on the machine; they take turns (A B C A B C ...).
A round is counted from the end of the one before; the first, which warms up, counts only for the
time to the first result. Figures are medians over rounds and turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from benchmarks.results_page.common import Document, keep, made_by, table
from noisemarket.machine import Effort, machine_in_words

HERE = Path(__file__).resolve().parent
MALLOC = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"
CORES = 2
LONGEST = 1800.0


@dataclass(frozen=True)
class Contestant:
    """A module of ``peers`` and how to start it."""

    name: str
    module: str
    label: str
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    processes: int = 1


OURS = Contestant("ours", "ours", "noisemarket, `paper` without noise, 2 workers")
CONTESTANTS = (
    Contestant(
        "central", "central", "central training, batch 6,400 (the limit)",
        environment={"OMP_NUM_THREADS": str(CORES), "GLIBC_TUNABLES": MALLOC},
    ),
    OURS,
    Contestant(
        "loop", "loop", "PyTorch loop with DataLoader and optim.SGD",
        environment={"OMP_NUM_THREADS": str(CORES)},
    ),
    Contestant(
        "flower", "flower", "Flower {flwr}, simulation on Ray, 2 actors",
        environment={
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
    ),
    Contestant(
        "pfl", "pfl_research", "pfl-research {pfl}, 2 processes",
        environment={"OMP_NUM_THREADS": "1"}, processes=2,
    ),
    Contestant("uneven", "ours", "noisemarket, uneven owners", {"beta": "0.1"}),
    Contestant("sharded", "ours", "noisemarket, `sharded`", {"protection": "sharded"}),
    Contestant("narrow", "ours", "noisemarket, narrow network", {"network": "market"}),
    Contestant(
        "narrow-sharded", "ours", "noisemarket, narrow network, `sharded`",
        {"network": "market", "protection": "sharded"},
    ),
)  # fmt: skip


@dataclass
class Run:
    """What one run of a contestant came to."""

    rounds: list[float] = field(default_factory=list)
    first_result: float = float("nan")
    said: list[dict[str, object]] = field(default_factory=list)
    peak_mb: float = 0.0
    problem: str = ""

    def value(self, name: str) -> object:
        """What the contestant said under this name, if anything."""
        return next((line[name] for line in self.said if name in line), None)


def run(contestant: Contestant, task: dict[str, object], memory: bool = False) -> Run:
    """Start a contestant, wait for it, and collect what it says."""
    told = json.dumps({**task, "options": {**contestant.options, **task.get("options", {})}})  # type: ignore[dict-item]
    result = Run()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **contestant.environment}
    if contestant.processes > 1:
        address = f"localhost:{_free_port()}"
        environment["PFL_WORKER_ADDRESSES"] = ",".join([address] * contestant.processes)
    command = [sys.executable, "-m", f"benchmarks.peers.{contestant.module}", told]
    with tempfile.TemporaryFile("w+") as complaints, tempfile.TemporaryDirectory() as scratch:
        environment["FLWR_HOME"] = scratch
        start = time.perf_counter()
        started = [
            subprocess.Popen(
                command,
                env=environment | {"PFL_WORKER_RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=complaints,
                text=True,
                start_new_session=True,
            )
            for rank in range(contestant.processes)
        ]
        watch = threading.Timer(LONGEST, lambda: [_stop(process) for process in started])
        watch.start()
        watcher = _Memory(started[0].pid) if memory else None
        try:
            assert started[0].stdout is not None
            for line in started[0].stdout:
                if not line.startswith("@"):
                    continue
                said = json.loads(line[1:])
                result.said.append(said)
                if "round" in said:
                    if said["round"] == 1:
                        result.first_result = time.perf_counter() - start
                    result.rounds.append(float(said["seconds"]))
            codes = [process.wait() for process in started]
        finally:
            watch.cancel()
            for process in started:
                if process.poll() is None:
                    _stop(process)
            if watcher is not None:
                result.peak_mb = watcher.stop()
        if any(codes):
            complaints.seek(0)
            lines = [line.strip() for line in complaints if line.strip()]
            result.problem = (lines[-1] if lines else f"exit code {codes}")[:160]
    return result


def _stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


class _Memory:
    """The peak of the memory of a process and all its descendants (proportional set size)."""

    def __init__(self, root: int) -> None:
        self._root, self._peak = root, 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self._peak = max(self._peak, sum(map(_pss, _tree(self._root))))

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        return self._peak


def _tree(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        parents.setdefault(parent, []).append(int(place.name))
    found, waiting = [], [root]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += parents.get(one, [])
    return found


def _pss(process: int) -> float:
    """Megabytes; memory that is shared counts in parts, so that a sum counts it once."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def contest(
    chosen: Sequence[Contestant], task: dict[str, object], turns: int
) -> dict[str, list[Run]]:
    """Everyone in turns."""
    runs: dict[str, list[Run]] = {contestant.name: [] for contestant in chosen}
    for turn in range(turns):
        for contestant in chosen:
            if any(before.problem for before in runs[contestant.name]):
                continue
            made = run(contestant, task)
            runs[contestant.name].append(made)
            shown = made.problem or " ".join(f"{seconds:.2f}" for seconds in made.rounds)
            print(f"  turn {turn + 1}  {contestant.name:14} {shown}", flush=True)
    return runs


def per_round(runs: list[Run]) -> float:
    """Median seconds of the rounds after the first."""
    rounds = [seconds for one in runs if not one.problem for seconds in one.rounds[1:]]
    return statistics.median(rounds) if rounds else float("nan")


def to_first(runs: list[Run]) -> float:
    """Median seconds from the start of the process to the end of its first round."""
    firsts = [one.first_result for one in runs if not one.problem]
    return statistics.median(firsts) if firsts else float("nan")


def measured(runs: dict[str, list[Run]]) -> dict[str, dict[str, object]]:
    """What each contestant came to, or why it came to nothing."""
    found: dict[str, dict[str, object]] = {}
    for contestant in (one for one in CONTESTANTS if one.name in runs):
        made = runs[contestant.name]
        own: dict[str, object] = {"label": contestant.label.format(**versions())}
        if problem := next((one.problem for one in made if one.problem), ""):
            own["problem"] = problem
        else:
            own["seconds_a_round"] = round(per_round(made), 3)
            own["seconds_to_first_result"] = round(to_first(made), 2)
            own["accuracy"] = made[-1].value("accuracy")
            own["rounds"] = [[round(seconds, 3) for seconds in one.rounds] for one in made]
        found[contestant.name] = own
    return found


def markdown(found: Document) -> str:
    """The table of benchmarks/README.md."""
    ours, rows = found["contestants"]["ours"]["seconds_a_round"], []
    for own in found["contestants"].values():
        if "problem" in own:
            rows.append([own["label"], f"not run: {own['problem']}", "", "", ""])
            continue
        took, first = own["seconds_a_round"], own["seconds_to_first_result"]
        rows.append([own["label"], f"{took:.2f}", f"{took / ours:.2f}", f"{first:.1f}",
                     f"{own['accuracy']:.1f}"])  # fmt: skip
    heads = ["contestant", "s a round", "over ours", "s to the first result", "test accuracy, %"]
    turns, many = found["turns"], found["many"]
    return (
        f"{table(heads, rows)}\n\n"
        f"Medians of {turns} turn{'s' * (turns != 1)} of {found['rounds']} rounds, without the "
        f"first; accuracy is after the last. Ours takes {found['peak_mb'] / 1000:.2f} GB; "
        f"{many['owners']:,} owners with 60 images each take {many['peak_mb'] / 1000:.2f} GB and "
        f"{many['seconds_a_round']:.2f} s a round.\n"
        f"Measured by {made_by(found)} on {found['date']} ({found['machine']})."
    )


def versions() -> dict[str, str]:
    """Of torch and of the peers."""
    found = {}
    for name in ("torch", "flwr", "ray", "pfl", "opacus"):
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found[name] = "(not installed)"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only to see that it runs")
    parser.add_argument("--turns", type=int, default=3, help="how often each contestant runs")
    parser.add_argument("--rounds", type=int, default=4, help="rounds a run, the first to warm up")
    parser.add_argument("--only", metavar="NAMES", help="contestants, by comma (ours always runs)")
    options = parser.parse_args()
    if options.rounds < 2 or options.turns < 1:
        parser.error("give at least 2 rounds and 1 turn")
    names = {contestant.name for contestant in CONTESTANTS}
    wanted = set(options.only.split(",")) | {"ours"} if options.only else names
    if wanted - names:
        parser.error(f"contestants are {', '.join(sorted(names))}")
    chosen = [contestant for contestant in CONTESTANTS if contestant.name in wanted]
    owners, turns, rounds = (4, 1, 2) if options.quick else (100, options.turns, options.rounds)
    task: dict[str, object] = {"owners": owners, "each": 600, "rounds": rounds}
    effort, found = Effort(), {"versions": versions(), "turns": turns, "rounds": rounds}
    print(f"Machine: {machine_in_words()}\n{versions()}\n\nSeconds of each round", flush=True)
    runs = contest(chosen, task, turns)
    print("Memory, and many owners", flush=True)
    usual = run(OURS, {**task, "rounds": 2}, memory=True)
    many = 40 if options.quick else 1000
    large = run(OURS, {"owners": many, "each": 60, "rounds": 2}, memory=True)
    for problem in (one.problem for one in (*runs["ours"], usual, large) if one.problem):
        raise SystemExit(f"noisemarket itself failed, so nothing is stored: {problem}")
    found |= {
        "contestants": measured(runs),
        "peak_mb": round(usual.peak_mb),
        "many": {"owners": many, "seconds_a_round": round(large.rounds[-1], 2),
                 "peak_mb": round(large.peak_mb)},
    }  # fmt: skip
    command = f"python -m benchmarks federated --turns {turns} --rounds {rounds}"
    command += f" --only {options.only}" if options.only else ""
    document = keep("federated", __doc__, command, effort, found, store=not options.quick)
    print("\n" + markdown(document))
    if options.quick:
        print("Sizes were tiny: none of these figures means anything, and none is stored.")


if __name__ == "__main__":
    main()
