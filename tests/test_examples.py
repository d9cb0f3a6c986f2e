"""Every example runs as it is, in a process of its own, and says what its text promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_own_model(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "own_model.py")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rounds = re.findall(r"^round +\d+: ([\d.]+) %$", done.stdout, re.MULTILINE)
    assert len(rounds) == 15
    assert float(rounds[-1]) > 50  # one class in three, unevenly: guessing gives about 40
    *_, noisy, quiet = done.stdout.splitlines()
    assert noisy.startswith("Owner 0, protection sharded, noise sigma 0.3, 15 uploads")
    assert quiet.startswith("Owner 1, protection sharded, noise sigma 0.1, 15 uploads")
    epsilons = [float(word) for word in re.findall(r"epsilon ([\d.]+) at delta", done.stdout)]
    assert 0 < epsilons[0] < epsilons[1]
    assert list(tmp_path.iterdir()) == []


def test_the_readme_names_every_example() -> None:
    said = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for file in EXAMPLES.iterdir():
        if file.is_file() and file.name != "README.md":
            assert f"[{file.name}]({file.name})" in said, file.name
