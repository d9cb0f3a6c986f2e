"""An owner's SuperNode as a service: checked before it starts, started again when it must be, and
asked whether it answers.

A SuperLink holds the place of a node that was killed until it has missed two heartbeats, and tells
a new one of the same key that it cannot be activated. Flower's SuperNode then ends. Here that is
said once, in one line, and the node is started again until it is let in.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.files import unusable
from noisemarket.flower import need_flower
from noisemarket.flower.deploy.deployment import POLL
from noisemarket.flower.deploy.processes import start_heard
from noisemarket.flower.deploy.superlink import flower_command
from noisemarket.flower.deploy.warm_apps import OWNER, WarmApps
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder

HEARTBEATS = 60.0
"""Seconds until a SuperLink gives up a node that is silent: two heartbeats of 30 seconds."""

_REFUSED = "Failed to activate SuperNode"
_PAUSE = 5.0


def check_node(path: Path) -> dict[str, Mapping[str, Any]]:
    """The owners of a node by its config file, if each of them could take part in a job."""
    need_flower()
    from noisemarket.flower.house import owners_of

    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise unusable("--node-config", str(path), "read", problem) from None
    except ValueError as problem:
        raise BadInput("--node-config", str(path), f"is not TOML ({problem}).") from None
    try:
        owners = owners_of(config)
        for one in owners.values():
            OwnerAgent(OwnerFolder.of(one), one).rho_cap()
    except Declined as problem:
        raise BadInput("--node-config", str(path), f"{problem}.") from None
    return owners


class OwnerNode:
    """Runs ``flower-supernode`` with these options until it is told to stop.

    ``say`` is told what it prints, line by line. It looks for an app to start every ``poll``
    seconds; with ``warm``, processes are copied from one that has imported what they need.
    """

    def __init__(
        self,
        options: Sequence[str],
        say: Callable[[str], None],
        poll: float = 1.0,
        *,
        warm: bool = False,
    ) -> None:
        self._command = [flower_command("flower-supernode"), *options]
        self._say, self._warm = say, warm
        self._environment = {"FLWR_TELEMETRY_ENABLED": "0", POLL: f"{poll:g}"} | os.environ
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def stop(self, *_: object) -> None:
        """End the SuperNode, and with it ``run``."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()

    def run(self) -> int:
        """Run it; gives its exit code, once it has ended for another reason than its old place."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        if not self._warm:
            return self._run()
        with WarmApps(OWNER, self._environment) as apps:
            apps.wait()
            self._command[0] = apps.command("flower-supernode")
            self._environment["PATH"] = apps.path
            return self._run()

    def _run(self) -> int:
        refused = 0.0
        while True:
            code, turned_away = self._once(quiet=refused > 0.0)
            if self._stopped or not turned_away:
                return 0 if self._stopped else code
            if not refused:
                refused = time.monotonic()
                self._say(
                    "The SuperLink still counts this node as online and lets it in when two "
                    f"heartbeats are missed, at most {HEARTBEATS:.0f} seconds after it ended. "
                    "Trying again; the job goes on meanwhile."
                )
            elif time.monotonic() - refused > 3 * HEARTBEATS:
                self._say("The SuperLink does not let this node in: is it registered, or online?")
                return code
            time.sleep(_PAUSE)

    def _once(self, *, quiet: bool) -> tuple[int, bool]:
        """One life of the SuperNode: its exit code, and whether it was turned away."""
        held, turned_away = list[str](), False
        self._process = start_heard(self._command, self._environment)
        with self._process as process:
            assert process.stdout is not None
            if self._stopped:
                process.terminate()
            for line in process.stdout:
                turned_away = turned_away or _REFUSED in line
                if quiet and "SuperNode ID" not in line:  # it is not let in
                    held.append(line)  # what it says each time before it is turned away
                    continue
                quiet = False
                self._say(line.rstrip("\n"))
        if quiet and not turned_away:
            for line in held:
                self._say(line.rstrip("\n"))
        return process.returncode, turned_away


def is_healthy(address: str, certificates: Path | None = None) -> str:
    """What is wrong with a SuperLink or SuperNode at the address of its own API; empty if it
    answers. ``certificates`` are of the issuer of its certificate, where it has one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput("HOST:PORT", address, "give a host and a port, as 127.0.0.1:9094.")
    if certificates is None:
        line = HTTPConnection(host, int(port), timeout=5.0)
    else:
        try:
            context = ssl.create_default_context(cafile=str(certificates))
        except (OSError, ssl.SSLError) as problem:
            remedy = f"is not a certificate ({problem})."
            raise BadInput("--root-certificates", str(certificates), remedy) from None
        line = HTTPSConnection(host, int(port), timeout=5.0, context=context)
    try:
        line.request("GET", "/health")
        status = line.getresponse().status
    except (OSError, HTTPException) as problem:
        return f"{address} does not answer ({problem})."
    finally:
        line.close()
    return "" if status == 200 else f"{address} answers with status {status}."
