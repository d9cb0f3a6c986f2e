"""What a run came to, bit by bit, without what no two runs have in common.

Everything is read through the command line and the files of the run folder. The names of these
files, and of what is left out, stand here and nowhere else.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import re
import struct
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tests.commands import call_here
from threadpoolctl import threadpool_info

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE / "scenarios"

METRICS = "curator/metrics.jsonl"
MODEL = "curator/model.npz"
SUMMARY = "summary.json"
CONTRACTS = "contracts.csv"
TRACE = "curator/trace.csv"
STATEMENTS = "owners/*/statement.json"

UNSTABLE = {"seconds", "text"}
"""Keys of times, which differ, and of prose, which may be said better."""

_LENGTHS = {32: "token", 64: "digest", 128: "signature"}
_HEX = re.compile(r"(?<![0-9a-z])[0-9a-f]{32,128}(?![0-9a-z])")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)")
_OWN = "sha256 "
"""Begins a digest that is the same in every run, and stays."""


def write_pictures(folder: Path) -> Path:
    """Pictures of ten kinds that are told apart easily, as idx files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 160, (10, 28, 28))
    for half, count in (("train", 400), ("t10k", 100)):
        labels = np.arange(count) % 10
        images = kinds[labels] + rng.integers(0, 95, (count, 28, 28))
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            shape = struct.pack(f">{array.ndim}I", *array.shape)
            content = bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()
            (folder / f"{half}-{name}-ubyte").write_bytes(content)
    return folder


def made_on() -> str:
    """What the bits of a trained model may depend on, besides this project."""
    names = [name for name in ("numpy", "scipy", "torch") if find_spec(name)]
    libraries = [f"{name} {version(name)}" for name in names]
    kernels = {str(one.get("architecture")) for one in threadpool_info()} - {"None"}
    return ", ".join([*libraries, platform.machine(), *sorted(kernels)])


class Placeholders:
    """Numbers keys, digests, signatures and names of jobs by their first appearance."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def replace(self, value: Any) -> Any:
        """The same value with placeholders, without the keys that are left out."""
        if isinstance(value, dict):
            return {
                self._text(str(name)): self.replace(one)
                for name, one in value.items()
                if name not in UNSTABLE
            }
        if isinstance(value, list | tuple):
            return [self.replace(one) for one in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        if text.startswith(_OWN):
            return text
        return _HEX.sub(self._placeholder, _TIME.sub("<time>", text))

    def _placeholder(self, found: re.Match[str]) -> str:
        kind = _LENGTHS.get(len(found[0]))
        if kind is None:
            return found[0]
        if found[0] not in self._seen:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._seen[found[0]] = f"<{kind} {self._counts[kind]}>"
        return self._seen[found[0]]


def sha256(array: np.ndarray) -> str:
    """The digest of an array's bits, with its type and shape."""
    bits = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"{_OWN}{bits} {array.dtype} {'x'.join(map(str, array.shape))}"


def run(name: str, folder: Path, *, seed: int | None = None) -> dict[str, Any]:
    """Run a scenario by the command line and record it."""
    pictures = write_pictures(folder / "pictures")
    words = ["run", str(SCENARIOS / f"{name}.toml"), "--out", "job", "--set", f"data={pictures}"]
    words += ["--no-baselines", "--workers", "1"]
    _call(*words, *([] if seed is None else ["--seed", str(seed)]), cwd=folder)
    return record(folder / "job")


def record(folder: Path) -> dict[str, Any]:
    """What is in a run folder. What a mechanism or a channel does not write is left out."""
    _call("ledger", "verify", str(folder), cwd=folder)
    _call("ledger", "export", str(folder), "--json", "entries.json", cwd=folder)
    entries = json.loads((folder / "entries.json").read_text())["entries"]
    metrics = (folder / METRICS).read_text().splitlines()
    found: dict[str, Any] = {
        "ledger": [[one["kind"], one["contract"], json.loads(one["body"])] for one in entries],
        "metrics": [json.loads(line) for line in metrics],
    }
    if (folder / SUMMARY).exists():
        found["summary"] = json.loads((folder / SUMMARY).read_text())
    for name, path in (("contracts", folder / CONTRACTS), ("trace", folder / TRACE)):
        if path.exists():
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            found[name] = [{key: _read(one) for key, one in row.items()} for row in rows]
    if statements := sorted(folder.glob(STATEMENTS)):
        found["statements"] = [json.loads(path.read_text()) for path in statements]
    with np.load(folder / MODEL) as model:
        found["model"] = {name: sha256(model[name]) for name in sorted(model)}
    return {"made_on": made_on(), **Placeholders().replace(found)}


def _read(cell: str) -> Any:
    """A cell of a CSV file: a number, true or false, or a text."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _call(*words: str, cwd: Path) -> None:
    done = call_here(*words, cwd=cwd)
    assert done.returncode == 0, f"noisemarket {' '.join(words)}\n{done.stdout}{done.stderr}"
