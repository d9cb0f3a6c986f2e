"""A SuperLink on this machine, on loopback, and the apps that it runs.

Every process has a Flower folder of its own, so that nothing of the user's is read or changed, and
nothing is installed at run time. ``deployment`` adds SuperNodes to it, or has Flower simulate them.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import tomli_w

from noisemarket.errors import MissingExtra, NoisemarketError
from noisemarket.files import Closing, private_folder, write_atomic
from noisemarket.flower.deploy.certificates import Certificates, make_certificates
from noisemarket.flower.deploy.processes import (
    HOST,
    Processes,
    fleet_apart,
    free_ports,
    start_heard,
)
from noisemarket.flower.host_files import CURATOR

SUPERLINK, FLEET = "superlink", "fleet api"
CONNECTION = "noisemarket"

Value = str | int | float | bool
Read = TypeVar("Read")

_STARTED = re.compile(r"started run (\d+)")
_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
    "COLUMNS": "200",
}


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: ``status`` is Flower's, such as ``finished:completed``."""

    run_id: int
    status: str

    @property
    def completed(self) -> bool:
        """Whether the ServerApp came to its end."""
        return self.status == "finished:completed"


class SuperLink(Closing):
    """A SuperLink that runs as long as the ``with`` block, and all that it starts.

    Args:
        folder: holds keys, logs and Flower's own files, for this user alone; by default a temporary
            one, removed at the end. A killed parent takes all processes with it.
        secure: whether the SuperLink has a certificate, made for it.
        patience: how many seconds a part may take to start or to answer.
        curator: the curator's own folder, in which the names in a run's settings are.
        environment: more variables for all processes.
    """

    more_options: Sequence[str] = ()
    """More words of the command that starts the SuperLink."""

    run_options: Sequence[str] = ()
    """More words of the command that runs an app."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        secure: bool = True,
        patience: float = 120.0,
        curator: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.secure, self.patience = secure, patience
        self._own = {} if curator is None else {CURATOR: str(curator.resolve())}
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="noisemarket-")) if folder is None else folder
        private_folder(self.folder)
        self._environment = {**os.environ, **_ENVIRONMENT, **(environment or {})}
        self._environment["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        )
        self._processes: Processes | None = None
        self._ports: dict[str, int] = {}
        self._certificates: Certificates | None = None

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

    def start_superlink(self) -> None:
        """Start the SuperLink on the database it had, if it had one."""
        command = [
            flower_command("flower-superlink"),
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
            ]  # fmt: skip
        command += self.more_options
        (self.folder / "superlink.db").touch(mode=0o600)
        self.processes.start(SUPERLINK, command, self._home(SUPERLINK), self._own)
        self._wait_port()

    def stop_superlink(self, *, kill: bool = False) -> None:
        """Stop the SuperLink, and with it a ServerApp that runs."""
        self.processes.stop(SUPERLINK, kill=kill)

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
        command = [flower_command("flwr"), "run", str(app), CONNECTION, "--stream"]
        command += ["--run-config", str(config)] if settings else []
        command += self.run_options
        run_id, said = 0, list[str]()
        with start_heard(command, self.processes.environment(self._home("flwr"))) as process:
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
            raise NoisemarketError(f"flwr run failed: {one_line(' '.join(said))}")
        return RunEnd(run_id, self.status(run_id))

    def status(self, run_id: int) -> str:
        """How a run stands; ``unknown`` if the SuperLink does not answer."""
        with contextlib.suppress(NoisemarketError):
            words = ["list", CONNECTION, "--run-id", str(run_id)]
            return self._flwr(words, lambda answer: str(answer["runs"][0]["status"]))
        return "unknown"

    # Setting up

    def _open(self, ports: Sequence[str] = ()) -> None:
        """Start the SuperLink; ``ports`` are names of other processes that need one."""
        names = [SUPERLINK, FLEET, *ports]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        if self.secure:
            self._certificates = make_certificates(self.folder / "certificates")
        self._write_connection()
        self._processes = Processes(
            self.folder / "logs", self._environment, self.folder if self._temporary else None
        )
        self.start_superlink()

    def _write_connection(self) -> None:
        own = self._certificates
        secured = {"root-certificates": str(own.authority)} if own else {"insecure": True}
        own_link = {"default": CONNECTION, CONNECTION: {"address": self.address, **secured}}
        private_folder(self._home("flwr"))
        write_atomic(self._home("flwr") / "config.toml", tomli_w.dumps({"superlink": own_link}))

    def _home(self, name: str) -> Path:
        return self.folder / "homes" / name

    def _command(self, name: str) -> str:
        """A command of Flower that is run to its end."""
        return flower_command(name)

    def _flwr(self, words: Sequence[str], read: Callable[[Any], Read]) -> Read:
        """What is read from the answer of a ``flwr`` command, which is JSON from a ``{`` on."""
        try:
            done = subprocess.run(
                [self._command("flwr"), *words, "--format", "json"],
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
            said = one_line(done.stdout + done.stderr)
            raise NoisemarketError(f"flwr {words[0]} failed: {said}")
        answer = done.stdout[max(0, done.stdout.find("{")) :]
        try:
            return read(json.loads(answer))
        except (ValueError, KeyError, TypeError, IndexError):
            unread = f"flwr {words[0]} cannot be understood: {one_line(answer)}"
            raise NoisemarketError(unread) from None

    def _wait_port(self) -> None:
        end = time.monotonic() + self.patience
        while time.monotonic() < end and self.processes.alive(SUPERLINK):
            address = HOST, self._ports[SUPERLINK]
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
                return
            time.sleep(0.1)
        raise NoisemarketError(f"superlink did not start: {self.processes.tail(SUPERLINK)}")


def one_line(text: str) -> str:
    """What a command said, without its frames, in one line."""
    return " ".join(re.sub(r"[\u2500-\u257f]|\x1b\[[0-9;]*m", " ", text).split())[-300:]


def flower_command(name: str) -> str:
    """A command of the environment that runs us."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise MissingExtra("The Flower engine", "flower")
    return found
