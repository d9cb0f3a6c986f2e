"""A Flower deployment on this machine: one SuperLink, a SuperNode per owner, on loopback.

With TLS and SuperNode authentication, as over real hosts: the SuperLink has a certificate made for
it, each SuperNode a key that was registered under the owner's name. Every process has a Flower
folder of its own, so that nothing of the user's is read or changed, and nothing is installed at run
time. Without (``secure=False``) nodes register themselves, and anyone on this machine can.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import tomli_w

from noisemarket.errors import BadInput, MissingExtra, NoisemarketError
from noisemarket.files import Closing, private_folder, write_atomic
from noisemarket.flower.deploy.certificates import (
    Certificates,
    NodeKey,
    make_certificates,
    make_node_key,
)
from noisemarket.flower.deploy.processes import HOST, Processes, fleet_apart, free_ports

SUPERLINK, FLEET = "superlink", "fleet api"
CONNECTION = "noisemarket"

Value = str | int | float | bool

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STARTED = re.compile(r"started run (\d+)")
_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
    "COLUMNS": "200",
}


@dataclass(frozen=True)
class NodeSetup:
    """An owner's SuperNode: its name, and the node config that its ClientApp will see."""

    name: str
    config: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: ``status`` is Flower's, such as ``finished:completed``."""

    run_id: int
    status: str

    @property
    def completed(self) -> bool:
        """Whether the ServerApp came to its end."""
        return self.status == "finished:completed"


class Deployment(Closing):
    """A SuperLink and SuperNodes that run as long as the ``with`` block.

    ``folder`` (by default a temporary one, removed at the end) holds keys, logs and Flower's own
    files, for this user alone. A killed parent takes them all with it. ``register`` may leave nodes
    out: they then run with a key that is on no list.
    """

    def __init__(
        self,
        nodes: Sequence[NodeSetup],
        folder: Path | None = None,
        *,
        secure: bool = True,
        register: Sequence[str] | None = None,
        patience: float = 120.0,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        for name in self.nodes:
            if not _NAME.fullmatch(name) or name == SUPERLINK:
                raise BadInput("node", name, "give letters, digits, - _ . and at most 64 of them.")
        if len(self.nodes) != len(nodes) or not nodes:
            raise BadInput("nodes", len(nodes), "give at least one node, each a name of its own.")
        self.secure, self.patience = secure, patience
        self._on_list = list(self.nodes) if register is None else list(register)
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="noisemarket-")) if folder is None else folder
        private_folder(self.folder)
        self._environment = {**os.environ, **_ENVIRONMENT}
        self._environment["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        )
        self._processes: Processes | None = None
        self._ports: dict[str, int] = {}
        self._certificates: Certificates | None = None
        self._keys: dict[str, NodeKey] = {}
        self.node_ids: dict[str, int] = {}
        """Flower's number of each node that was registered; it keeps it for good."""

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop everything and remove the temporary folder."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    # What is running

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self._ports[SUPERLINK]}"

    @property
    def fleet_address(self) -> str:
        """Where it listens to SuperNodes."""
        return f"{HOST}:{self._ports[FLEET if fleet_apart() else SUPERLINK]}"

    @property
    def processes(self) -> Processes:
        """The processes, while the deployment is open."""
        if self._processes is None:
            raise NoisemarketError("The deployment is not running.")
        return self._processes

    def log(self, name: str) -> Path:
        """The log of the SuperLink (and ServerApps) or of a node (and its ClientApps)."""
        return self.processes.log(name)

    def online(self) -> list[str]:
        """The nodes that are online: by name, or by number where they registered themselves."""
        names = {str(number): name for name, number in self.node_ids.items()}
        answer = self._flwr("supernode", "list", CONNECTION, "--format", "json")
        with _read("supernode", answer):
            nodes = json.loads(answer)["nodes"]
            online = [str(node["node-id"]) for node in nodes if node["status"] == "online"]
        return [names.get(number, number) for number in online]

    def wait_online(self, count: int) -> None:
        """Wait until this many nodes are online."""
        end = time.monotonic() + self.patience
        while len(online := self.online()) < count:
            if time.monotonic() > end:
                raise NoisemarketError(f"Only {len(online)} of {count} SuperNodes came online.")
            time.sleep(0.5)

    # Starting and stopping single parts

    def start_superlink(self) -> None:
        """Start the SuperLink on the database it had, if it had one."""
        command = [
            _command("flower-superlink"),
            "--host", HOST,
            "--port", str(self._ports[SUPERLINK]),
            "--database", str(self.folder / "superlink.db"),
            "--disable-runtime-dependency-installation",
        ]  # fmt: skip
        if fleet_apart():
            command += ["--fleet-api-address", self.fleet_address]
        if self._certificates is None:
            command.append("--insecure")
        else:
            command += [
                "--ssl-certfile", str(self._certificates.certificate),
                "--ssl-keyfile", str(self._certificates.key),
                "--ssl-ca-certfile", str(self._certificates.authority),
                "--enable-supernode-auth",
            ]  # fmt: skip
        (self.folder / "superlink.db").touch(mode=0o600)
        self.processes.start(SUPERLINK, command, self._home(SUPERLINK))
        self._wait_port(SUPERLINK)

    def stop_superlink(self, *, kill: bool = False) -> None:
        """Stop the SuperLink, and with it a ServerApp that runs."""
        self.processes.stop(SUPERLINK, kill=kill)

    def start_node(self, name: str) -> None:
        """Start a node. One that was killed is let in again only when the SuperLink has missed its
        heartbeats, a minute later: until then this tries again."""
        config = private_folder(self.folder / "nodes") / f"{name}.toml"
        write_atomic(config, tomli_w.dumps(self.nodes[name].config), private=True)
        command = [
            _command("flower-supernode"),
            "--superlink", self.fleet_address,
            "--host", HOST,
            "--port", str(self._ports[name]),
            "--node-config", str(config),
        ]  # fmt: skip
        if self._certificates is None:
            command.append("--insecure")
        else:
            command += [
                "--root-certificates", str(self._certificates.authority),
                "--auth-supernode-private-key", str(self._keys[name].private),
            ]  # fmt: skip
        self.processes.start(name, command, self._home(name))

    def restart_node(self, name: str) -> None:
        """Start a node that was stopped or killed, and wait until it is in again."""
        end = time.monotonic() + self.patience
        log = self.log(name)
        seen = log.stat().st_size if log.exists() else 0
        while time.monotonic() < end:
            if not self.processes.alive(name):
                self.processes.stop(name)
                self.start_node(name)
            if b"SuperNode ID" in log.read_bytes()[seen:]:
                return
            time.sleep(0.5)
        raise NoisemarketError(f"{name} did not come back: {self.processes.tail(name)}")

    def stop_node(self, name: str, *, kill: bool = False) -> None:
        """Stop a node and the ClientApp that it runs."""
        self.processes.stop(name, kill=kill)

    # Running apps

    def run(
        self,
        app: str | Path,
        settings: Mapping[str, Value] | None = None,
        *,
        show: Callable[[str], None] | None = None,
    ) -> RunEnd:
        """``flwr run``: run an app to its end, showing its log line by line.

        ``settings`` override the app's config, which must have these keys.
        """
        config = self.folder / f"run-{secrets.token_hex(4)}.toml"
        write_atomic(config, tomli_w.dumps(settings or {}))
        command = [_command("flwr"), "run", str(app), CONNECTION, "--stream"]
        command += ["--run-config", str(config)] if settings else []
        run_id = 0
        said: list[str] = []
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self.processes.environment(self._home("flwr")),
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    said = [*said[-5:], line.strip()]
                    if found := _STARTED.search(line):
                        run_id = int(found[1])
                    if show is not None:
                        show(line.rstrip("\n"))
            except BaseException:
                process.kill()
                raise
        if not run_id:
            raise NoisemarketError(f"flwr run failed: {_plain(' '.join(said))}")
        return RunEnd(run_id, self.status(run_id))

    def status(self, run_id: int) -> str:
        """How a run stands; ``unknown`` if the SuperLink does not answer."""
        with contextlib.suppress(NoisemarketError, ValueError, KeyError, IndexError):
            answer = self._flwr("list", CONNECTION, "--run-id", str(run_id), "--format", "json")
            return str(json.loads(answer)["runs"][0]["status"])
        return "unknown"

    # Setting up

    def _open(self) -> None:
        names = [SUPERLINK, FLEET, *self.nodes]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        if self.secure:
            self._certificates = make_certificates(self.folder / "certificates")
            self._keys = {n: make_node_key(self.folder / "keys", n) for n in self.nodes}
        self._write_connection()
        self._processes = Processes(
            self.folder / "logs", self._environment, self.folder if self._temporary else None
        )
        self.start_superlink()
        if self.secure:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(self.register, self._on_list))
        for name in self.nodes:
            self.start_node(name)
        expected = [name for name in self.nodes if not self.secure or name in self._on_list]
        self.wait_online(len(expected))

    def register(self, name: str) -> None:
        """Put a node's public key on the SuperLink's list, under the owner's name."""
        words = [str(self._keys[name].public), CONNECTION, "--name", name, "--format", "json"]
        answer = self._flwr("supernode", "register", *words)
        with _read("supernode", answer):
            self.node_ids[name] = int(json.loads(answer)["node-id"])

    def _write_connection(self) -> None:
        own = self._certificates
        secured = {"root-certificates": str(own.authority)} if own else {"insecure": True}
        own_link = {"default": CONNECTION, CONNECTION: {"address": self.address, **secured}}
        private_folder(self._home("flwr"))
        write_atomic(self._home("flwr") / "config.toml", tomli_w.dumps({"superlink": own_link}))

    def _home(self, name: str) -> Path:
        return self.folder / "homes" / name

    def _flwr(self, *words: str) -> str:
        """The answer of a ``flwr`` command: with ``--format json``, its last line that is JSON."""
        try:
            done = subprocess.run(
                [_command("flwr"), *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.patience,
                env=self.processes.environment(self._home("flwr")),
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = f"flwr {words[0]} has not answered within {self.patience:g} seconds."
            raise NoisemarketError(late) from None
        if done.returncode != 0:
            said = _plain(done.stdout + done.stderr)
            raise NoisemarketError(f"flwr {words[0]} failed: {said}")
        start = done.stdout.find("{")
        return done.stdout[start:] if start >= 0 else done.stdout

    def _wait_port(self, name: str) -> None:
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            if not self.processes.alive(name):
                break
            with (
                contextlib.suppress(OSError),
                socket.create_connection((HOST, self._ports[name]), timeout=1),
            ):
                return
            time.sleep(0.1)
        raise NoisemarketError(f"{name} did not start: {self.processes.tail(name)}")


@contextlib.contextmanager
def _read(command: str, answer: str) -> Iterator[None]:
    """Where the answer of a ``flwr`` command is read: what cannot be read is said in words."""
    try:
        yield
    except (ValueError, KeyError, TypeError):
        raise NoisemarketError(f"flwr {command} cannot be understood: {_plain(answer)}") from None


def _plain(text: str) -> str:
    """What a command said, without its frames, in one line."""
    return " ".join(re.sub(r"[\u2500-\u257f]|\x1b\[[0-9;]*m", " ", text).split())[-300:]


def _command(name: str) -> str:
    """A command of the environment that runs us."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise MissingExtra("The Flower engine", "flower")
    return found
