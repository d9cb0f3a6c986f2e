"""Curators at once on the same owners, killed at random: what their wallets must hold.

    python -m tests.market.curators --kills 300                    (all three: make torture)
    python -m tests.market.curators --kills 300 --curators 2
    python -m tests.market.curators --kills 100 --curators 2 --engine flower

Every curator is a process that runs a job of its own with the same lasting owners, whose budget is
too small for all of the jobs: the last get more noise, or no owner. With ``--engine flower`` it
is a ServerApp, whose owners answer in workers of Flower's simulation, and these are killed with it.
Processes are killed and started again until every job is done, or nobody has privacy left for it.
After every kill this must hold for every owner's wallet:

- no line is lost or changed, also none that was there at the last kill;
- after every line reserved plus spent is within the budget, and no job has passed its reservation;
- what was spent is, after every line, what dp_accounting composes of the releases, to 1e-9;
- a contract that both sides signed, and that is not settled, has its reservation.

When all are done no reservation is left, and every round that a job charged was spent once.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from tests.market.common import here, job_name, scenario, write_images

from noisemarket.errors import NoisemarketError
from noisemarket.files import last_line, parse_json_lines
from noisemarket.market.events import BEGUN, EVENTS, NEGOTIATING
from noisemarket.market.job import NobodySigned
from noisemarket.market.orders import prepare
from noisemarket.owner.folder import CONTRACT, STATEMENT
from noisemarket.owner.wallet import Balance, Wallet, last_of
from noisemarket.privacy.accountant import read_journal
from noisemarket.scenario import Scenario

OWNERS, ROUNDS = 2, 2
FLOWER = "flower"
ORDER = 8.0
SETTLED = "settled"
"""Where a job was killed whose wallets are closed; it is killed no more."""
NOBODY = 3
"""How a curator ends for whom no owner has privacy left."""


class Violation(Exception):
    """Something that must hold after a kill does not."""


def wallets(root: Path) -> list[Wallet]:
    """The wallets of all owners in a folder."""
    files = sorted(root.glob("owner-*/wallet-*.jsonl"))
    lines = [(file.parent, line) for file in files if (line := last_of(file)) is not None]
    return [Wallet(folder, line["owner"], line["records"]) for folder, line in lines]


def look(
    root: Path, budget: float, before: Mapping[str, Balance] = MappingProxyType({})
) -> dict[str, Balance]:
    """What must hold at any time, and ``before``; gives the balance of each owner."""
    found = {}
    for wallet in wallets(root):
        accountant, spent, balance = RdpAccountant([ORDER]), list[float](), Balance()
        known = before.get(wallet.owner, balance)
        for line in wallet.history():
            balance = Balance.of(line)
            if line["did"] == "spend":
                job = balance.open[line["job"]]
                accountant.compose(GaussianDpEvent(job.terms.noise_multiplier))
                spent.append(line["rho"])
                if job.spent > job.terms.rho_cap * (1 + 1e-9):
                    raise Violation(f"{wallet.owner} has passed its reservation: {job}")
            if balance.spent + balance.reserved > budget * (1 + 1e-9):
                raise Violation(f"{wallet.owner} has passed its budget: {balance}")
            for mine in (balance.spent, math.fsum(spent)):
                theirs = float(accountant._rdp[0]) / ORDER
                if not math.isclose(mine, theirs, rel_tol=1e-9):
                    raise Violation(f"{wallet.owner} has spent {mine}, dp_accounting says {theirs}")
            if balance.number == known.number and balance.head != known.head:
                raise Violation(f"{wallet.owner} has other lines than before")
        if balance.number < known.number:
            raise Violation(f"{wallet.owner} has lost lines: {balance.number} of {known.number}")
        for contract in wallet.folder.glob(f"jobs/*/{CONTRACT}"):
            job = contract.parent
            if job.name not in wallet.account().open and not (job / STATEMENT).exists():
                raise Violation(f"{wallet.owner} has lost the reservation of {job.name}")
        found[wallet.owner] = balance
    return found


def ended_well(root: Path, runs: list[Path]) -> None:
    """What must hold when all jobs are done."""
    spent = Counter(
        (line["job"], wallet.owner, line["round"])
        for wallet in wallets(root)
        for line in wallet.history()
        if line["did"] == "spend"
    )
    charged = Counter(
        (job_name(run), str(charge.owner), charge.round)
        for run in runs
        for path in run.glob("*/privacy.journal")
        for charge in read_journal(path).charges
    )
    if spent != charged:
        raise Violation(f"wallets and journals differ: {(spent - charged) + (charged - spent)}")
    for wallet in wallets(root):
        if wallet.account().open:
            raise Violation(f"{wallet.owner} keeps a reservation: {wallet.account().open}")


def small(images: Path, engine: str, **more: float) -> Scenario:
    """The job of every curator, in which an owner sells. Over Flower owners are asked, and a job
    trains for longer, so that it is not killed while it starts only."""
    mechanism, rounds = "equilibrium", ROUNDS
    if engine == FLOWER:
        mechanism, rounds = "clock", 10 * ROUNDS
        more |= {"quality_value": 5.0, "payment_max": 200.0}
    return scenario(
        images, owners=OWNERS, rounds=rounds, model="features", noise="secure",
        mechanism=mechanism, **more,
    )  # fmt: skip


def begin(images: Path, folder: Path, root: Path, budget: float, engine: str) -> int:
    """A child that runs or resumes a curator's job; gives its number, which is its group's."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        out = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        made = small(images, engine, rho_budget=budget)
        if engine == FLOWER:
            from noisemarket.flower.simulation import run_simulation

            run_simulation(prepare(made), folder, workers=1, owners=root).finish()
        else:
            here(made, folder, owners=root).finish()
        code = 0
    except NobodySigned:
        code = NOBODY
    except NoisemarketError as problem:
        code = NOBODY if "No owner has" in str(problem) else 1
        print(problem)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end(pid: int) -> None:
    """Kill a child with all that it has started."""
    family = psutil.Process(pid).children(recursive=True)
    os.killpg(pid, signal.SIGKILL)
    for one in family:  # of other groups
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    os.waitpid(pid, 0)


def wave(
    place: Path, images: Path, curators: int, kills: int, rng: random.Random, engine: str
) -> Counter[str]:
    """Some curators at once on new owners, until all are done; gives how many were killed, and
    where."""
    root, killed, known = place / "consortium", Counter[str](), dict[str, Balance]()
    made, longest = small(images, engine), 5.0 if engine == FLOWER else 0.3
    alone = here(made, place / "alone").finish()
    budget = max(owner.rho for owner in alone.owners) * curators * 0.6
    left = {place / f"run-{number}": 0 for number in range(curators)}
    done, settled, since = list[Path](), set[Path](), dict[Path, float]()
    try:
        for folder in left:
            left[folder] = begin(images, folder, root, budget, engine)
        while left:
            victims = sorted(left.keys() - settled) if killed.total() < kills else []
            time.sleep(rng.uniform(0.0, longest if victims else 0.3))
            for folder, pid in list(left.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                code = os.waitstatus_to_exitcode(status)
                del left[folder]
                if code not in (0, NOBODY):
                    said = folder.with_suffix(".log").read_text()[-2000:]
                    raise Violation(f"{folder.name} ended with {code}: {said}")
                done += [folder] if code == 0 else []
            victims = [folder for folder in victims if folder in left]
            if engine == FLOWER and rng.random() < 0.9:  # one in ten while Flower starts
                victims = [folder for folder in victims if _awake(folder, since.get(folder, 0.0))]
                victims = victims if rng.random() < 0.4 else []
            if victims:
                folder = rng.choice(victims)
                end(left.pop(folder))
                known = look(root, budget, known)
                killed[where := _where(folder, known)] += 1
                settled |= {folder} if where == SETTLED else set()
                since[folder] = time.time()
                left[folder] = begin(images, folder, root, budget, engine)
        look(root, budget, known)
        ended_well(root, done)
        if not done:
            raise Violation(f"none of {curators} jobs was done")
    finally:
        for pid in left.values():
            end(pid)
    return killed


def _awake(folder: Path, since: float) -> bool:
    """Whether a curator that was begun at this time has negotiated with owners."""
    file = folder / "curator" / EVENTS
    if not file.exists() or file.stat().st_mtime < since:
        return False
    with file.open("rb") as opened:
        lines = parse_json_lines(last_line(opened)[1], file, "events", dict)
    return bool(lines) and lines[-1]["kind"] not in (BEGUN, NEGOTIATING)


def _where(folder: Path, known: Mapping[str, Balance]) -> str:
    """How far a curator's job had come, by the owners' wallets."""
    job = job_name(folder) if (folder / "market.json").exists() else ""
    held = [one.open[job] for one in known.values() if job in one.open]
    if held:
        return "in training" if any(one.releases for one in held) else "reserved"
    return SETTLED if job and any(folder.glob("*/privacy.journal")) else "before"


def run(words: list[str] | None = None) -> int:
    """Run waves until there were enough kills; 0 if all held."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--kills", type=int, default=60, help="kills in all; by default 60")
    options.add_argument("--curators", type=int, default=8, help="at once; by default 8")
    options.add_argument("--wave", type=int, default=20, help="kills of one set of owners")
    options.add_argument("--engine", choices=("embedded", FLOWER), default="embedded")
    options.add_argument("--seed", default=str(time.time_ns()), help="of all that is drawn")
    given = options.parse_args(words)
    print(f"seed {given.seed}", flush=True)
    place, rng = Path(tempfile.mkdtemp(prefix="nm-curators-")), random.Random(given.seed)
    (place / "images").mkdir()
    images, kills, waves = write_images(place / "images"), Counter[str](), 0
    try:
        while kills.total() < given.kills:
            folder = place / f"wave-{waves}"
            folder.mkdir()
            wanted = min(given.wave, given.kills - kills.total())
            kills += wave(folder, images, given.curators, wanted, rng, given.engine)
            waves += 1
            jobs = waves * given.curators
            print(f"{kills.total()} kills, {jobs} jobs: {dict(kills)}", flush=True)
            shutil.rmtree(folder)
    except Violation as problem:
        print(f"NOT HELD (seed {given.seed}, {place}): {problem}", flush=True)
        return 1
    shutil.rmtree(place)
    print(f"{kills.total()} kills of {given.curators} curators at once: all held.")
    return 0


if __name__ == "__main__":
    sys.exit(run())
