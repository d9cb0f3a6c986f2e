"""Warm starts of Flower's apps: commands that run in copies of a process with all imports done.

``path`` goes first on the PATH of SuperNodes. It holds commands of Flower's names, which have a
server (``warm_server``) run the real ones. Where that is not possible, on other systems than Linux
or when the server is gone, the real commands run as ever, and a line says so.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from logging import getLogger
from pathlib import Path

from noisemarket.files import Closing, write_atomic
from noisemarket.flower.deploy.processes import ShortFolder
from noisemarket.flower.deploy.superlink import flower_command
from noisemarket.flower.deploy.warm_launch import __file__ as launcher
from noisemarket.flower.deploy.warm_server import COMMANDS

OWNER = (
    "noisemarket.flower.owner_app",
    "noisemarket.owner.round",
    "cryptography.hazmat.primitives.ciphers.algorithms",
    "scipy.special",
    "scipy.optimize",
)
"""What an owner's messages need, with the default model."""

TORCH = ("noisemarket.federated.models.cnn", "noisemarket.federated.models.torch_model")
"""What they need besides with the CNN."""

COLD = "NOISEMARKET_COLD"
"""The variable that, set to anything, has every process start from scratch."""

_PATIENCE = 60.0


class WarmApps(Closing):
    """A server of warm starts, and the commands that use it, until ``close``.

    It imports ``modules``, which must start no thread, and says in ``log`` what went wrong, by
    default in a file that ends with it.

    Example:
        with WarmApps(OWNER, os.environ) as warm:
            subprocess.run(["flower-supernode", ...], env={**os.environ, "PATH": warm.path})
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str], log: Path | None = None
    ) -> None:
        self._folder: ShortFolder | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._path = environment.get("PATH", os.defpath)
        if environment.get(COLD):
            return
        if not sys.platform.startswith("linux"):
            getLogger(__name__).warning("Apps start from scratch: warm starts need Linux.")
            return
        self._folder = ShortFolder("warm")
        self._socket = self._folder.path / "socket"
        self._log = log or self._folder.path / "log"
        for name in COMMANDS:
            words = [sys.executable, "-I", "-S", launcher, str(self._socket), flower_command(name)]
            file = self._folder.path / name
            write_atomic(file, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            file.chmod(0o700)
        if not os.access(file, os.X_OK):
            above = self._folder.path.parent
            getLogger(__name__).warning("Apps start from scratch: no program may run in %s.", above)
            self.close()
            return
        command = [sys.executable, "-P", "-m", "noisemarket.flower.deploy.warm_server"]
        with self._log.open("ab") as output:
            self._server = subprocess.Popen(
                [*command, str(self._socket), *modules],
                stdin=subprocess.PIPE,  # ends with this process, and the server with it
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )

    @property
    def path(self) -> str:
        """The PATH of processes whose commands are to start warm."""
        if self._folder is None:
            return self._path
        return os.pathsep.join([str(self._folder.path), self._path])

    def command(self, name: str) -> str:
        """A command of Flower that starts warm, if it can."""
        return flower_command(name) if self._folder is None else str(self._folder.path / name)

    @property
    def ready(self) -> bool:
        """Whether the server answers."""
        alive = self._server is not None and self._server.poll() is None
        return alive and self._socket.exists()

    def wait(self) -> None:
        """Wait until the server is ready; a line says so if it cannot be."""
        end = time.monotonic() + _PATIENCE
        while self._server is not None and not self.ready:
            if self._server.poll() is not None or time.monotonic() > end:
                said = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
                why = next((line for line in reversed(said) if line.strip()), "it is too slow")
                getLogger(__name__).warning("Apps start from scratch: %s", why.strip())
                return
            time.sleep(0.05)

    def close(self) -> None:
        """End the server and all that it runs."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._server = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None
