"""The browser of the tests: Debian's Chromium, or another one of its kind that is there already.

    python -m tests.show.dashboard.browser      # says where it is; installs it, if that is possible

Only root on a Debian or Ubuntu can install it. Playwright's own download is not used: it comes from
elsewhere than the rest of the system.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OWN = "NOISEMARKET_CHROMIUM"
"""The environment variable that names another one."""


def find() -> str | None:
    """Where the browser is, if there is one."""
    if own := os.environ.get(OWN):
        return own
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> None:
    """Install Debian's package."""
    words = ["install", "--yes", "--no-install-recommends", "chromium"]
    if not _apt(*words):
        _apt("update")
        _apt(*words)


def _apt(*words: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *words], stdout=subprocess.DEVNULL, env=environment, check=False
    )
    return done.returncode == 0


def obtain() -> str | None:
    """Where the browser is; it is installed if there is none and this process may."""
    if find() is None and shutil.which("apt-get") and os.geteuid() == 0:
        install()
    return find()


if __name__ == "__main__":
    place = obtain()
    if place is None:
        sys.exit(f"No Chromium: install the package chromium, or name one in {OWN}.")
    print(place)
