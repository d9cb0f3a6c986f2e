"""Flower's real processes on loopback, with TLS and SuperNode authentication, for tests.

Everything goes by Flower's own commands, as between hosts. Every process carries a mark in its
environment, which those that Flower starts inherit: so none is left behind.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from unittest import mock

import psutil
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.commands import PATIENCE
from typer.testing import CliRunner

from noisemarket.flower.host_files import CURATOR, write_node_key

HOST, SUPERLINK, CONNECTION = "127.0.0.1", "superlink", "market"
COMMANDS = Path(sys.executable).parent
MARK = "NOISEMARKET_TEST"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
    "COLUMNS": "200",
}


class Deployment:
    """A SuperLink and SuperNodes, for the length of a ``with`` block.

    Args:
        nodes: the config of each SuperNode, by its name.
        folder: holds keys, logs and Flower's own files.
        curator: the curator's folder.
        registered: the nodes whose keys are registered; by default all.
    """

    def __init__(
        self,
        nodes: Mapping[str, Mapping[str, Any]],
        folder: Path,
        curator: Path,
        registered: Sequence[str] | None = None,
    ) -> None:
        self._nodes, self.folder = dict(nodes), folder
        self._registered = list(nodes) if registered is None else list(registered)
        self.token = secrets.token_hex(16)
        path = os.pathsep.join([str(COMMANDS), os.environ["PATH"]])  # Flower starts others by name
        own = {"PATH": path, MARK: self.token, CURATOR: str(curator)}
        self._environment = {**os.environ, **QUIET, **own}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(1 + len(self._nodes))
        self._ports = dict(zip([SUPERLINK, *self._nodes], ports, strict=True))
        self.node_ids: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        make_certificate(self.folder)
        address = f"{HOST}:{self._ports[SUPERLINK]}"
        link = {"address": address, "root-certificates": str(self.folder / "server.pem")}
        self._home("flwr").mkdir(parents=True)
        config = {"superlink": {"default": CONNECTION, CONNECTION: link}}
        (self._home("flwr") / "config.toml").write_text(tomli_w.dumps(config))
        try:
            self.start_superlink()
            for name, settings in self._nodes.items():
                (self.folder / f"{name}.toml").write_text(tomli_w.dumps(settings))
                public = write_node_key(self.folder / f"{name}-key")
                if name in self._registered:
                    words = ["supernode", "register", str(public), CONNECTION, "--name", name]
                    self.node_ids[name] = int(self._flwr(*words)["node-id"])
                self.start_node(name)
            wait(lambda: sorted(self.online()) == sorted(self._registered))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        end = time.monotonic() + 10.0
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        while self.processes() and time.monotonic() < end:
            time.sleep(0.1)
        while left := self.processes():
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
        for process in self._running.values():
            process.wait()

    def processes(self, program: str = "") -> list[psutil.Process]:
        """The processes of this deployment, or those that run this program."""
        found = []
        for process in psutil.process_iter(["environ", "cmdline", "status"]):
            if (process.info["environ"] or {}).get(MARK) == self.token:
                words = [Path(word).name for word in (process.info["cmdline"] or [])[:2]]
                if process.info["status"] != psutil.STATUS_ZOMBIE and (program or "") in [
                    "",
                    *words,
                ]:
                    found.append(process)
        return found

    def kill(self, program: str) -> None:
        """As a crash would, the one process of the deployment that runs this program."""
        (process,) = self.processes(program)
        process.kill()

    def log(self, name: str) -> str:
        """What the SuperLink (and ServerApps) or a node (and its ClientApps) printed."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def alive(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def start_superlink(self) -> None:
        """Start the SuperLink on the database it had, if it had one."""
        at = self.folder
        self._start(SUPERLINK, [
            "flower-superlink", "--host", HOST, "--port", str(self._ports[SUPERLINK]),
            "--database", str(at / "superlink.db"), "--enable-supernode-auth",
            "--ssl-certfile", str(at / "server.pem"), "--ssl-keyfile", str(at / "server.key"),
            "--ssl-ca-certfile", str(at / "server.pem"),
            "--disable-runtime-dependency-installation",
        ])  # fmt: skip

        def listening() -> bool:
            assert self.alive(SUPERLINK), self.log(SUPERLINK)
            with contextlib.suppress(OSError):
                socket.create_connection((HOST, self._ports[SUPERLINK]), timeout=1).close()
                return True
            return False

        wait(listening)

    def start_node(self, name: str) -> None:
        self._start(name, [
            "flower-supernode", "--superlink", f"{HOST}:{self._ports[SUPERLINK]}",
            "--host", HOST, "--port", str(self._ports[name]),
            "--root-certificates", str(self.folder / "server.pem"),
            "--auth-supernode-private-key", str(self.folder / f"{name}-key"),
            "--node-config", str(self.folder / f"{name}.toml"),
        ])  # fmt: skip

    def restart_node(self, name: str) -> None:
        """Start a node again, and again until the SuperLink, which has to miss its heartbeats
        first, lets it in; as a service that is restarted when it ends."""
        seen = len(self.log(name))

        def let_in() -> bool:
            if not self.alive(name):
                self.start_node(name)
            return "SuperNode ID" in self.log(name)[seen:]

        wait(let_in)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End the SuperLink or a node with all of its group; by a signal, or as by a crash."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        process.wait(PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def online(self) -> list[str]:
        names = {str(number): name for name, number in self.node_ids.items()}
        nodes = self._flwr("supernode", "list", CONNECTION)["nodes"]
        return [names[str(one["node-id"])] for one in nodes if one["status"] == "online"]

    def run(
        self, app: Path, settings: Mapping[str, Any], show: Callable[[str], None] = print
    ) -> bool:
        """``flwr run``: run an app to its end, line by line; whether it completed."""
        config = self.folder / f"run-{secrets.token_hex(4)}.toml"
        config.write_text(tomli_w.dumps(settings))
        words = ["run", str(app), CONNECTION, "--stream", "--run-config", str(config)]
        with subprocess.Popen(
            [str(COMMANDS / "flwr"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env=self._variables("flwr"),
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                show(line.rstrip("\n"))
        if not self.alive(SUPERLINK):
            return False
        runs = self._flwr("list", CONNECTION)["runs"]
        return bool(runs) and runs[0]["status"] == "finished:completed"

    def _flwr(self, *words: str) -> Any:
        """The answer of a ``flwr`` command, which is JSON from a ``{`` on. The command runs in this
        process: one of its own would take seconds to import Flower."""
        said = io.StringIO()
        with warnings.catch_warnings(), mock.patch.object(sys, "__stdout__", said):
            warnings.simplefilter("ignore")
            from flwr.cli.app import app

            words = (*words, "--format", "json")
            done = CliRunner().invoke(app, words, env=self._variables("flwr"))
        assert done.exit_code == 0, done.output + said.getvalue()
        return json.loads(said.getvalue()[said.getvalue().find("{") :])

    def _start(self, name: str, words: Sequence[str]) -> None:
        self._home(name).mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(COMMANDS / words[0]), *words[1:]], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env=self._variables(name), start_new_session=True,
            )  # fmt: skip

    def _home(self, name: str) -> Path:
        return self.folder / "homes" / name

    def _variables(self, name: str) -> dict[str, str]:
        return {**self._environment, "FLWR_HOME": str(self._home(name))}


def wait(until: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until the last is found, so that they differ."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in held]


def make_certificate(folder: Path, addresses: Sequence[str] = (HOST,)) -> None:
    """A certificate for these addresses that vouches for itself, as ``server.pem``."""
    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    names = [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA384())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.key").write_bytes(text)
