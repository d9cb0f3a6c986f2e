"""Warm starts: commands of Flower in copies of a process that has imported everything."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from noisemarket.flower.deploy.processes import ShortFolder, free_ports
from noisemarket.flower.deploy.warm_apps import WarmApps

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux"),
]

APP, SUPEREXEC = "flwr-clientapp", "flower-superexec"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmApps]:
    log = tmp_path_factory.mktemp("warm") / "log"
    with WarmApps(["noisemarket.flower.owner_app"], os.environ, log) as apps:
        apps.wait()
        assert apps.ready, log.read_text()
        yield apps


def server_of(warm: WarmApps) -> psutil.Process:
    (found,) = (
        one for one in psutil.Process().children() if str(warm.path).split(":")[0] in
        " ".join(one.cmdline()) and "warm_server" in " ".join(one.cmdline())
    )  # fmt: skip
    return found


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def run(command: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command, *words], capture_output=True, text=True, check=False, env=os.environ | variables
    )


def waiting(warm: WarmApps) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A SuperExec that looks for a SuperNode in vain, and the process in which it really runs."""
    words = ["--runtime-api-address", f"127.0.0.1:{free_ports(1)[0]}", "--insecure"]
    given = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    asked = subprocess.Popen(
        [warm.command(SUPEREXEC), *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given,
    )  # fmt: skip
    assert asked.stdout is not None
    assert "Starting Flower SuperExec" in asked.stdout.readline()
    (copy,) = server_of(warm).children()
    assert copy.name() == SUPEREXEC[:15], "operators see what it is"
    time.sleep(0.5)  # it takes signals in a moment only
    return asked, copy


def test_a_copy_has_the_callers_variables_words_output_and_exit_code(warm: WarmApps) -> None:
    command = warm.command(APP)
    cold = run(Path(sys.executable).with_name(APP).as_posix(), "--help", COLUMNS="90")
    assert cold.returncode == 0
    for columns in ("90", "50"):
        done = run(command, "--help", COLUMNS=columns)
        assert (done.returncode, done.stderr) == (0, "")
        assert (done.stdout == cold.stdout) == (columns == "90")
    wrong = run(command, "--insecure")
    assert wrong.returncode == 2
    assert "--token" in wrong.stderr
    assert server_of(warm).num_threads() == 1


def test_only_this_user_can_ask_and_nonsense_harms_nothing(warm: WarmApps) -> None:
    folder = Path(warm.path.split(os.pathsep)[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    other = b'{"words": ["rm"], "folder": "/", "variables": {}}'
    for said in (b"", b"\0\0\0\x02{}", b"\xff\xff\xff\xffx", len(other).to_bytes(4, "big") + other):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(folder / "socket"))
            line.sendall(said)
            line.shutdown(socket.SHUT_WR)
            assert line.recv(1) == b"", "nothing was started"
    assert run(warm.command(APP), "--help").stderr == ""


def test_who_asked_is_killed_and_the_copy_ends(warm: WarmApps) -> None:
    asked, copy = waiting(warm)
    with asked:
        asked.kill()
    until(lambda: not copy.is_running() or copy.status() == psutil.STATUS_ZOMBIE)


def test_a_signal_to_end_is_passed_on(warm: WarmApps) -> None:
    asked, copy = waiting(warm)
    with asked:
        asked.send_signal(signal.SIGTERM)
        assert asked.stdout is not None
        assert "terminated gracefully" in asked.stdout.read()
    assert asked.returncode == 0
    assert not copy.is_running()


def test_without_the_server_commands_start_from_scratch_and_say_so(tmp_path: Path) -> None:
    with WarmApps([], os.environ, tmp_path / "log") as apps:
        apps.wait()
        asked, copy = waiting(apps)
        server_of(apps).kill()
        with asked:
            assert asked.wait() == 1
        until(lambda: not copy.is_running())
        assert not apps.ready
        done = run(apps.command(APP), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: flwr-clientapp")
    (line,) = done.stderr.splitlines()
    assert line.startswith("flwr-clientapp has no warm start (")
    assert line.endswith("); it starts from scratch.")


def test_a_server_that_cannot_start_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with WarmApps(["noisemarket.no_such_module"], os.environ, tmp_path / "log") as apps:
        apps.wait()
        assert not apps.ready
    (said,) = caplog.messages
    assert said.startswith("Apps start from scratch: ModuleNotFoundError")


HOLDER = """
import sys, time
from noisemarket.flower.deploy.processes import ShortFolder

folder = ShortFolder("test")
print(folder.path, flush=True)
time.sleep(300)
"""


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command, given = [sys.executable, "-c", HOLDER], {**os.environ, "TMPDIR": str(tmp_path)}
    other = tmp_path / "nm-test-somebody"
    other.mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with ShortFolder("test"):
            lives = left.exists()
        process.kill()
    assert lives, "as long as its process"
    assert left.exists()
    with ShortFolder("test") as next_one:
        assert not left.exists()
        assert next_one.path.exists()
        assert other.exists(), "not one of ours"
    assert not next_one.path.exists()


def test_where_no_program_may_run_commands_start_from_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in ``/tmp`` of a container: commands are then Flower's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    usual = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: tmp_path not in Path(path).parents and usual(path, mode)
    )
    with WarmApps([], {"PATH": "/bin"}) as apps:
        apps.wait()
        assert (apps.path, apps.ready) == ("/bin", False)
        assert Path(apps.command(APP)).name == APP
    assert caplog.messages == [f"Apps start from scratch: no program may run in {tmp_path}."]
    assert list(tmp_path.iterdir()) == []
    with WarmApps([], {"PATH": "/bin", "NOISEMARKET_COLD": "1"}) as asked:
        assert asked.path == "/bin"
    assert len(caplog.messages) == 1
