"""The crash campaign: jobs that are killed at random moments, resumed, and looked at each time.

    python -m tests.market.torture --kills 200 --seed 7        (make torture)

What is killed, drawn anew each time:

main       ``kill -9`` of the main process; its workers have to end by themselves
group      ``kill -9`` of the main process and its workers at once
forked     ``kill -9`` of a process that trains by itself: no start, so there can be many
postgres   ``kill -9`` of the PostgreSQL server that has the ledger, which is then started again
flower     ``kill -9`` of a worker of Flower's simulation

Every child is what ``noisemarket run`` and ``noisemarket run --resume`` are, forked from a process
that has imported everything. After every kill, and again when a job is done, this must hold:

- the ledger verifies, and begins with all that it had at the last look: nothing is lost;
- nobody is signed up or paid twice, and not more is paid than the budget;
- no owner's round is charged twice, and none is in the model that is not charged;
- no process and no shared memory is left.

A job that is done has the contracts, rounds, payments, charges and, with simulated noise, the model
of one that nobody disturbed. Ends with exit code 1 and keeps the folder if anything does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ledger.postgres import Server
from tests.market.common import here, settings, state, write_images

from noisemarket.cli import main
from noisemarket.errors import LedgerError
from noisemarket.files import load_arrays, read_json_lines
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import LEDGER_FILE, open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import job as market_job
from noisemarket.market import run_folder as folders
from noisemarket.market.job import run_market
from noisemarket.privacy.accountant import read_journal
from noisemarket.show import market_report

MAIN, GROUP, FORKED, POSTGRES, FLOWER = "main", "group", "forked", "postgres", "flower"
KINDS = {MAIN: 2, GROUP: 2, FORKED: 8, POSTGRES: 1, FLOWER: 1}
"""How often each is killed, by default: those that start processes take seconds each."""

OWNERS, ROUNDS, BUDGET = 3, 3, 100.0
PATIENCE = 300.0
NO_TWO_ALIKE = ("seconds", "ledger_head")
"""What no two jobs have in common in their summaries."""


class Violation(Exception):
    """Something that must hold after a kill does not."""


@dataclass
class Job:
    """One job: how it is run, and what was seen of it at the last look."""

    folder: Path
    kind: str
    noise: str
    url: str = ""
    kills: int = 0
    entries: list[str] = field(default_factory=list)
    charges: list[tuple[object, int]] = field(default_factory=list)

    def words(self, images: Path) -> list[str]:
        """What ``noisemarket`` is told: to begin, or to go on."""
        if (self.folder / folders.SCENARIO).exists():
            return ["run", "--resume", str(self.folder), "--workers", "1"]
        given = settings(
            images, owners=OWNERS, rounds=ROUNDS, noise=self.noise, budget=BUDGET, model="features"
        )
        given["widths"] = list(given["widths"])
        if self.url:
            given["market.ledger"] = self.url
        if self.kind == FLOWER:
            given |= {"mechanism": "clock"}
        sets = [word for name, value in given.items() for word in ("--set", _setting(name, value))]
        engine = ["--engine", "flower"] if self.kind == FLOWER else []
        out = ["--workers", "1", "--out", str(self.folder), "--overwrite"]
        return ["run", "--no-baselines", *engine, *sets, *out]

    def command(self, images: Path) -> None:
        """``noisemarket run``, in this process, but for its figures: they take nearly all the time,
        and are drawn when everything is paid."""
        market_report.draw_market = lambda *_: []  # type: ignore[assignment]
        market_job.run_market = here if self.kind == FORKED else run_market  # type: ignore[assignment]
        try:
            main(self.words(images))
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 0)


def _setting(name: str, value: object) -> str:
    return f"{name}={json.dumps(value)}"


# Processes


def begin(job: Job, images: Path, log: Path) -> int:
    """A child in a session of its own that runs the job; gives its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        job.command(images)
        code = 0
    finally:
        os._exit(code)


def processes() -> Iterator[tuple[int, int, int, list[str]]]:
    """Number, parent, session and words of every process."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if fields[0] != "Z":
                yield int(path.name), int(fields[1]), int(fields[3]), words


def wait_for(pid: int, seconds: float) -> int | None:
    """The exit code of a child (negative: the signal that ended it), None if it still runs."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.02)


def kill(job: Job, pid: int, server: Server | None, rng: random.Random) -> int | None:
    """Kill what this job is killed by; gives the child's exit code, None if it goes on."""
    if job.kind == GROUP:
        os.killpg(pid, signal.SIGKILL)
        return wait_for(pid, PATIENCE)
    if job.kind == POSTGRES:
        assert server is not None
        server.crash()
        return wait_for(pid, PATIENCE)
    if job.kind == FLOWER:
        below, workers = {pid}, []
        for one, parent, _, words in sorted(processes()):  # parents first
            if parent in below:
                below.add(one)
                workers += [one] if words[0].startswith("ray::ClientAppActor") else []
        os.kill(rng.choice(workers) if workers else pid, signal.SIGKILL)
        return wait_for(pid, 600 if workers else PATIENCE)
    os.kill(pid, signal.SIGKILL)
    return wait_for(pid, PATIENCE)


def mapped(pid: int) -> set[Path]:
    """The shared memory that the processes of a session have under a name."""
    found = set()
    for one, _, session, _ in processes():
        if session == pid:
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{one}/maps").read_text().splitlines()
                found |= {
                    Path(line[seen.start() :])
                    for line in lines
                    if (seen := re.search("/dev/shm/[^/]+$", line))
                }
    return {path for path in found if "(deleted)" not in path.name}


def nothing_left(pid: int, memory: set[Path]) -> None:
    """The workers of a process end with it, and leave none of the shared memory that they had."""
    end = time.monotonic() + PATIENCE
    while left := [one for one, _, session, _ in processes() if session == pid]:
        if time.monotonic() > end:
            raise Violation(f"processes are left: {left}")
        time.sleep(0.05)
    if kept := sorted(path.name for path in memory if path.exists()):
        raise Violation(f"shared memory is left: {kept}")


# What must hold


def look(job: Job) -> None:
    """What must hold at any time, however the last process ended."""
    if not (job.folder / folders.JOB).exists():
        return
    manifest = json.loads((job.folder / folders.JOB).read_text())
    place = manifest["ledger"] or job.folder / LEDGER_FILE
    journal, checkpoint = _charges(job), _rounds(job)
    if manifest["ledger"] or (job.folder / LEDGER_FILE).exists():
        with open_ledger(str(place)) as ledger:
            try:
                verify(ledger)
            except LedgerError as problem:
                raise Violation(f"the ledger does not verify: {problem}") from None
            entries = [entry.hash for entry in ledger.entries()]
            signed = [one.contract.owner for one in contracts(ledger, manifest["job"])]
            kinds = Counter((entry.kind, entry.contract) for entry in ledger.entries())
            paid = sum(one.paid or 0 for one in contracts(ledger, manifest["job"]))
        if entries[: len(job.entries)] != job.entries:
            raise Violation("the ledger lost entries that it had")
        if len(set(signed)) != len(signed):
            raise Violation(f"an owner has two contracts: {signed}")
        for (what, contract), times in kinds.items():
            if what in ("paid", "broken", "signed", "offered") and times > 1:
                raise Violation(f"contract {contract} is {what} {times} times")
        if paid > BUDGET * 1_000_000:
            raise Violation(f"{paid} micro-units are paid")
        job.entries = entries
    if not set(job.charges) <= set(journal):
        raise Violation("the journal lost charges that it had")
    if len(set(journal)) != len(journal):
        raise Violation("a round is charged twice")
    if uncharged := checkpoint - set(journal):
        raise Violation(f"released and not charged: {sorted(map(str, uncharged))}")
    job.charges = journal


def _charges(job: Job) -> list[tuple[object, int]]:
    """Owner and round of all that was charged."""
    if job.kind == FLOWER:
        files = sorted((job.folder / "owners").glob("*/wallet-*.jsonl"))
        lines = [(file.parent.name, line) for file in files for line in whole_lines(file)]
        return [(who, line["round"]) for who, line in lines if line["did"] == "spend"]
    file = job.folder / "owners" / folders.JOURNAL
    if not file.exists() or b"\n" not in file.read_bytes():
        return []
    return [(str(charge.owner), charge.round) for charge in read_journal(file).charges]


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a wallet, without one that was cut off."""
    return read_json_lines(file, "wallet", dict)


def _rounds(job: Job) -> set[tuple[object, int]]:
    """Owner and round of all that is in the model."""
    path = job.folder / "curator" / folders.CHECKPOINT
    if job.kind == FLOWER or not path.exists():
        return set()
    rounds = json.loads(str(load_arrays(path)["results"]))
    return {(str(owner), one["number"]) for one in rounds for owner in one["delivered"]}


def came_to(job: Job) -> Any:
    """What a job that is done has in common with one that nobody disturbed."""
    whole = state(job.folder)
    if job.noise == "simulated":
        summary = json.loads((job.folder / "summary.json").read_text())
        return whole, {name: value for name, value in summary.items() if name not in NO_TWO_ALIKE}
    agreed = {owner: (terms[:3], found[:3]) for owner, (terms, found) in whole["owners"].items()}
    return whole["kinds"], agreed, [charge[:2] for charge in whole["charges"]]


def ended_well(job: Job, whole: Any) -> None:
    """What must hold when a job is done."""
    status = json.loads((job.folder / "status.json").read_text())
    if status["state"] != "complete":
        raise Violation(f"the status says {status['state']}")
    manifest = json.loads((job.folder / folders.JOB).read_text())
    with open_ledger(manifest["ledger"] or str(job.folder / LEDGER_FILE), create=False) as one:
        standing = {c.contract.owner: c.state for c in contracts(one, manifest["job"])}
    if set(standing.values()) - {"paid", "broken"} or len(standing) != OWNERS:
        raise Violation(f"contracts are open: {standing}")
    if left := [str(path) for path in job.folder.rglob("*.new")]:
        raise Violation(f"half-written files are left: {left}")
    if job.kind != FLOWER and came_to(job) != whole:
        raise Violation("the job came to something else than an undisturbed one")


# The campaign


class Campaign:
    """Kills until there were enough, and counts."""

    def __init__(self, place: Path, seed: str, weights: dict[str, int]) -> None:
        self.place, self.rng = place, random.Random(seed)
        self.weights = {kind: weight for kind, weight in weights.items() if weight}
        self.images = write_images(_made(place / "images"))
        self.server = Server(durable=True) if POSTGRES in self.weights else None
        self.kills: Counter[str] = Counter()
        self.jobs = 0
        self._whole: dict[tuple[str, str], tuple[float, Any]] = {}

    def close(self) -> None:
        """End the server."""
        if self.server is not None:
            self.server.stop()

    def job(self) -> None:
        """One job, killed again and again until it is done."""
        (kind,) = self.rng.choices(list(self.weights), list(self.weights.values()))
        noise = self.rng.choice(["simulated", "secure"])
        takes, whole = self.undisturbed(kind, noise)
        job = self._new(f"job-{self.jobs}", kind, noise)
        log = self.place / "log"
        try:
            while True:
                pid = begin(job, self.images, log)
                longest = takes * (1 + job.kills / 10)  # on a busy machine it would never get on
                code = wait_for(pid, self.rng.uniform(0.0, longest))
                memory = mapped(pid)
                if code is None:
                    code = kill(job, pid, self.server, self.rng)
                    job.kills += 1
                    self.kills[kind] += 1
                nothing_left(pid, memory)
                look(job)
                if code == 0:
                    break
                if code is None or (code > 0 and kind not in (POSTGRES, FLOWER)):
                    raise Violation(f"the process ended with {code}: {log.read_text()[-500:]}")
                if "Traceback" in log.read_text():
                    raise Violation(f"a traceback: {log.read_text()[-2000:]}")
            ended_well(job, whole)
        except Violation as problem:
            said = f"{kind}, {noise} noise, after {job.kills} kills: {problem}. See {job.folder}."
            raise Violation(said) from None
        self.jobs += 1
        shutil.rmtree(job.folder)

    def undisturbed(self, kind: str, noise: str) -> tuple[float, Any]:
        """How long such a job takes that nobody kills, and what it comes to."""
        if (kind, noise) not in self._whole:
            job = self._new(f"whole-{kind}-{noise}", kind, noise)
            start = time.monotonic()
            code = wait_for(begin(job, self.images, self.place / "log"), 600)
            if code != 0:
                said = (self.place / "log").read_text()[-2000:]
                raise Violation(f"an undisturbed job of {kind} ended with {code}: {said}")
            takes = time.monotonic() - start
            look(job)
            ended_well(job, whole := None if kind == FLOWER else came_to(job))
            self._whole[kind, noise] = takes, whole
        return self._whole[kind, noise]

    def _new(self, name: str, kind: str, noise: str) -> Job:
        job = Job(self.place / name, kind, noise)
        if kind == POSTGRES:
            assert self.server is not None
            job.url = self.server.new_place()
        return job


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def run(words: list[str] | None = None) -> int:
    """Run the campaign; 0 if all held."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--kills", type=int, default=60, help="kills in all; by default 60")
    options.add_argument("--minutes", type=float, default=600.0, help="stop after so many")
    options.add_argument("--seed", default=str(time.time_ns()), help="of all that is drawn")
    for kind, weight in KINDS.items():
        options.add_argument(f"--{kind}", type=int, default=weight, help=f"weight, {weight}")
    given = options.parse_args(words)
    print(f"seed {given.seed}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="nm-torture-"))
    weights = {kind: getattr(given, kind) for kind in KINDS}
    campaign = Campaign(place, given.seed, weights)
    end, shown = time.monotonic() + 60 * given.minutes, 0
    try:
        while campaign.kills.total() < given.kills and time.monotonic() < end:
            campaign.job()
            if campaign.kills.total() >= shown + (1 if given.flower else 20):
                shown = campaign.kills.total()
                print(f"{shown} kills, {campaign.jobs} jobs done", flush=True)
    except Violation as problem:
        print(f"NOT HELD (seed {given.seed}): {problem}", flush=True)
        return 1
    finally:
        campaign.close()
    shutil.rmtree(place)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(campaign.kills.items()))
    print(f"{campaign.kills.total()} kills ({kinds}) of {campaign.jobs} jobs: all held.")
    return 0


if __name__ == "__main__":
    sys.exit(run())
