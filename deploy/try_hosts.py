"""Tries a market over several hosts: network namespaces of this machine stand for them.

    sudo python deploy/try_hosts.py                  # an owner, and a house of two; two rounds
    sudo python deploy/try_hosts.py --fresh          # owners from a new environment, without torch
    sudo python deploy/try_hosts.py --out FILE       # stores what was measured

The curator's namespace has a SuperLink on loopback and nginx with ``deploy/nginx.conf`` in front of
it. Each owner's has a link to the curator and to nothing else, and runs ``noisemarket flower
node``. Needs Linux, root, iproute2 and nginx. Owners' processes run as root, too, which those of a
real owner should not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import tomli_w

from noisemarket.flower.deploy.app_folder import write_app
from noisemarket.flower.deploy.certificates import make_certificates, make_node_key
from noisemarket.flower.deploy.single_machine import deal_out
from noisemarket.ledger.keys import KeyPair
from noisemarket.machine import Effort
from noisemarket.market.preparation import prepare
from noisemarket.scenario import Scenario, dump_scenario

HERE = Path(__file__).resolve().parent
CURATOR, HOUSE = "nm-curator", "south"
PROXY, SUPERLINK = 9092, 8000
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
LET_IN = "SuperNode ID"


class Tried(Exception):
    """Something was not as it should be."""


def call(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise Tried(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done


@dataclass
class Hosts:
    """Namespaces that stand for hosts, and the processes in them."""

    place: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, name: str, number: int) -> None:
        """A host; an owner's has a link to the curator's, as 10.77.NUMBER.2 to 10.77.NUMBER.1."""
        call("ip", "netns", "add", name)
        call("ip", "-n", name, "link", "set", "lo", "up")
        if number:
            ends = (CURATOR, f"nmc{number}", 1), (name, f"nmo{number}", 2)
            call("ip", "link", "add", ends[0][1], "type", "veth", "peer", "name", ends[1][1])
            for host, link, last in ends:
                call("ip", "link", "set", link, "netns", host)
                call("ip", "-n", host, "addr", "add", f"10.77.{number}.{last}/24", "dev", link)
                call("ip", "-n", host, "link", "set", link, "up")

    def words(self, host: str, words: Sequence[str]) -> list[str]:
        """A command, to be run on a host."""
        return ["ip", "netns", "exec", host, *words]

    def start(self, host: str, name: str, words: Sequence[str], **variables: str) -> Path:
        """Start a process on a host; gives its log."""
        log = self.place / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.words(host, words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **QUIET, "FLWR_HOME": str(self.place / name), **variables},
                start_new_session=True,
            )
        self.running.append(process)
        return log

    def end(self, names: Sequence[str]) -> None:
        """Stop all processes, and remove the namespaces."""
        for process in self.running:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGTERM)
        time.sleep(2)
        for name in names:
            for word in call("ip", "netns", "pids", name, check=False).stdout.split():
                with contextlib.suppress(OSError):
                    os.kill(int(word), signal.SIGKILL)
            call("ip", "netns", "del", name, check=False)


def path_with(commands: Path) -> str:
    """The PATH with a folder of commands first: Flower's processes start others by name."""
    return os.pathsep.join([str(commands), os.environ["PATH"]])


def wait_for(what: str, true: object, seconds: float = 120.0) -> float:
    """Wait until something holds; gives how long that took."""
    start = time.monotonic()
    while not true():  # type: ignore[operator]
        if time.monotonic() - start > seconds:
            raise Tried(f"{what}: not within {seconds:.0f} seconds")
        time.sleep(0.1)
    return time.monotonic() - start


class Memory:
    """The most megabytes that the processes of a namespace take, by the names of the processes."""

    def __init__(self, host: str) -> None:
        self._host, self.most = host, dict[str, float]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> dict[str, float]:
        """What was seen."""
        self._over.set()
        self._thread.join()
        return {name: round(value, 1) for name, value in sorted(self.most.items())}

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for word in call("ip", "netns", "pids", self._host, check=False).stdout.split():
                with contextlib.suppress(psutil.Error):
                    one = psutil.Process(int(word))
                    name, size = one.name(), one.memory_info().rss / 1e6
                    self.most[name] = max(self.most.get(name, 0.0), size)


@contextlib.contextmanager
def owners_commands(fresh: bool, place: Path) -> Iterator[tuple[Path, dict[str, object]]]:
    """The folder of an owner's commands, and what its installation takes."""
    if not fresh:
        yield Path(sys.executable).parent, {}
        return
    start = time.monotonic()
    call(sys.executable, "-m", "venv", str(place / "venv"))
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    limits = ["--constraint", str(HERE.parent / "constraints.txt")]
    call(str(place / "venv/bin/python"), *words, f"{HERE.parent}[owner]", *limits)
    size = int(call("du", "--summarize", "--block-size=1M", str(place / "venv")).stdout.split()[0])
    loaded = call(str(place / "venv/bin/python"), "-m", "pip", "list", "--format=freeze").stdout
    took = round(time.monotonic() - start)
    yield (
        place / "venv" / "bin",
        {
            "install_megabytes": size,
            "install_seconds": took,
            "packages": len(loaded.splitlines()),
            "torch": "torch==" in loaded,
        },
    )


def main() -> None:
    """Set up, run a job, and say what was seen."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--fresh", action="store_true", help="owners in a new environment")
    options.add_argument("--bin", type=Path, help="the owners' commands, of another environment")
    options.add_argument("--warm", action="store_true", help="owners' processes start warm")
    options.add_argument("--out", type=Path, help="write what was measured to this JSON file")
    given = options.parse_args()
    effort = Effort()
    with tempfile.TemporaryDirectory(prefix="nm-hosts-") as folder:
        place = Path(folder)
        with owners_commands(given.fresh, place) as (commands, installed):
            trial = Trial(place, given.bin or commands, given.rounds, warm=given.warm)
            try:
                seen = trial.run()
            except BaseException:
                for log in place.glob("*.log"):
                    print(f"--- {log.name}", log.read_text(errors="replace")[-3000:], sep="\n")
                raise
            finally:
                trial.hosts.end(trial.names)
    document = {"what": "An owner on a host of its own.", **effort.as_dict(), **installed, **seen}
    print(json.dumps(document, indent=2))
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


class Trial:
    """One job: owner 0 on a host of its own, owners 1 and 2 in a house on another."""

    def __init__(self, place: Path, owners_bin: Path, rounds: int, *, warm: bool) -> None:
        self.place, self.hosts = place, Hosts(place)
        self.names = [CURATOR, "nm-0", f"nm-{HOUSE}"]
        self._bin, self._owners_bin, self._warm = Path(sys.executable).parent, owners_bin, warm
        self._curator = place / "curator"
        self._curator.mkdir()
        scenario = Scenario.from_preset("market", owners=3, rounds=rounds)
        (self._curator / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
        key = KeyPair.obtain(self._curator / "desk").public_hex
        first, *others = deal_out(prepare(scenario), place / "owners", key)
        house = place / "house.toml"
        house.touch(mode=0o600)
        house.write_text(tomli_w.dumps({one.name: dict(one.config) for one in others}))
        (self._curator / "houses.toml").write_text(f'{HOUSE} = ["1", "2"]\n')
        self._configs = {"0": dict(first.config), HOUSE: {"house": str(house)}}
        self._files = make_certificates(
            self._curator / "tls", ["127.0.0.1", "10.77.1.1", "10.77.2.1"]
        )

    def run(self) -> dict[str, object]:
        """Start everything, and run the job."""
        for number, name in enumerate(self.names):
            self.hosts.add(name, number)
        self._start_curator()
        seen: dict[str, object] = {}
        for number, name in enumerate(self._configs, start=1):
            self._register(name)
            seen[f"seconds_to_start_{name}"] = round(self._start_node(name, number), 1)
        self._check_ways()
        watch = Memory("nm-0")
        time.sleep(1)
        self._run_job()
        seen |= {"owner_megabytes": watch.end(), "warm": self._warm}
        verify = call(
            str(self._bin / "noisemarket"), "ledger", "verify", str(self._curator / "job")
        )
        print(verify.stdout.strip())
        return seen

    def _flwr(self, *words: str) -> str:
        home = self.place / "flwr"
        command = [str(self._bin / "flwr"), *words]
        done = subprocess.run(
            self.hosts.words(CURATOR, command),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **QUIET, "FLWR_HOME": str(home)},
        )
        if done.returncode:
            raise Tried(f"flwr {words[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def _start_curator(self) -> None:
        files = self._files
        self.hosts.start(
            CURATOR,
            "superlink",
            [
                str(self._bin / "flower-superlink"),
                *("--host", "127.0.0.1", "--port", str(SUPERLINK)),
                *("--database", str(self._curator / "superlink.db")),
                *("--ssl-certfile", str(files.certificate), "--ssl-keyfile", str(files.key)),
                *("--ssl-ca-certfile", str(files.authority), "--enable-supernode-auth"),
                "--disable-runtime-dependency-installation",
            ],
            NOISEMARKET_CURATOR=str(self._curator),
            PATH=path_with(self._bin),
        )
        health = self.hosts.words(CURATOR, [
            str(self._bin / "noisemarket"), "flower", "health", f"127.0.0.1:{SUPERLINK}",
            "--root-certificates", str(files.authority),
        ])  # fmt: skip
        wait_for("the SuperLink", lambda: call(*health, check=False).returncode == 0)
        conf = (HERE / "nginx.conf").read_text(encoding="utf-8")
        for old, new in (
            ("/data/server.pem", files.certificate),
            ("/data/server.key", files.key),
            ("/data/ca.crt", files.authority),
        ):
            conf = conf.replace(old, str(new))
        (self.place / "nginx.conf").write_text(f"daemon off; pid {self.place}/nginx.pid;\n{conf}")
        nginx = shutil.which("nginx")
        if nginx is None:
            raise Tried("nginx is not installed")
        errors = str(self.place / "nginx-errors")
        words = [nginx, "-c", str(self.place / "nginx.conf"), "-e", errors]
        self.hosts.start(CURATOR, "nginx", words)
        (self.place / "flwr").mkdir()
        link = {"address": f"127.0.0.1:{SUPERLINK}", "root-certificates": str(files.authority)}
        config = {"superlink": {"default": "market", "market": link}}
        (self.place / "flwr" / "config.toml").write_text(tomli_w.dumps(config))

    def _register(self, name: str) -> None:
        key = make_node_key(self.place / "keys", name)
        self._flwr("supernode", "register", str(key.public), "market", "--name", name)

    def _node(self, name: str, number: int) -> list[str]:
        config = self.place / f"{name}.toml"
        config.write_text(tomli_w.dumps(self._configs[name]))
        return [
            str(self._owners_bin / "noisemarket"), "flower", "node", "--node-config", str(config),
            "--superlink", f"10.77.{number}.1:{PROXY}",
            "--root-certificates", str(self._files.authority),
            "--auth-supernode-private-key", str(self.place / "keys" / name),
            *(["--warm"] if self._warm else []),
        ]  # fmt: skip

    def _start_node(self, name: str, number: int) -> float:
        words, path = self._node(name, number), path_with(self._owners_bin)
        log = self.hosts.start(f"nm-{name}", f"node-{name}", words, PATH=path)
        return wait_for(f"node {name}", lambda: LET_IN in log.read_text(errors="replace"))

    def _check_ways(self) -> None:
        """An owner reaches the Fleet API through the proxy, and nothing else of any host."""
        probe = (
            "import socket, ssl, sys, http.client as h\n"
            "def way(host, port):\n"
            "    try: socket.create_connection((host, port), 2).close(); return True\n"
            "    except OSError: return False\n"
            "c = ssl.create_default_context(cafile=sys.argv[1])\n"
            "def status(path):\n"
            f"    line = h.HTTPSConnection('10.77.1.1', {PROXY}, timeout=5, context=c)\n"
            "    line.request('POST', path); return line.getresponse().status\n"
            f"print(way('10.77.1.1', {PROXY}), way('10.77.1.1', {SUPERLINK}), "
            "way('10.77.2.2', 9094), status('/v1/control/'), status('/v1/runtime/'))\n"
        )
        words = [sys.executable, "-c", probe, str(self._files.authority)]
        said = call(*self.hosts.words("nm-0", words)).stdout.split()
        if said != ["True", "False", "False", "403", "403"]:
            raise Tried(f"an owner's ways: {said}")

    def _run_job(self) -> None:
        app, run = write_app(self.place / "app"), self.place / "run.toml"
        names = {"scenario": "scenario.toml", "folder": "job", "curator-folder": "desk"}
        run.write_text(tomli_w.dumps({**names, "houses": "houses.toml"}))
        said = self._flwr("run", str(app), "market", "--stream", "--run-config", str(run))
        print(said)
        if "Settled." not in said:
            raise Tried("the job has not settled")


if __name__ == "__main__":
    main()
