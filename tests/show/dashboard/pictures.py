"""Remakes the pictures of the dashboard in docs/images, from a complete run of the default market.

python -m tests.show.dashboard.pictures      # runs the market first, in build/pictures
"""

from __future__ import annotations

import json
import subprocess
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.commands import command
from tests.show.dashboard import browser as chromium
from tests.show.dashboard.served import Served
from tests.show.dashboard.test_browser import ARGUMENTS, opened

ROOT = Path(__file__).resolve().parents[3]
RUNS, IMAGES = ROOT / "build" / "pictures", ROOT / "docs" / "images"
TALLEST = 1700


def make() -> None:
    """Run the market, and take its pictures."""
    subprocess.run(command("run", "--out", str(RUNS / "demo"), "--overwrite"), check=True)
    owners = json.loads((RUNS / "demo" / "outcome.json").read_text())["owners"]
    seller = max(owners, key=lambda one: one["saving"])["owner"]
    pages = {"run": "#/run/demo", "owner": f"#/owner/demo/{seller}", "whatif": "#/whatif"}
    served = Served(RUNS)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium.obtain(), args=ARGUMENTS)
            for name, path in pages.items():
                page = opened(browser, served, path)
                page.wait_for_selector(".loading", state="detached")
                page.wait_for_load_state("networkidle" if name != "run" else "load")
                page.wait_for_timeout(1000)  # the ledger is checked, the charts are drawn
                picture = Image.open(BytesIO(page.screenshot(full_page=True)))
                cut = picture.crop((0, 0, picture.width, min(picture.height, TALLEST)))
                small = cut.convert("RGB").quantize(dither=Image.Dither.NONE)
                small.save(IMAGES / f"dashboard-{name}.png", optimize=True)
    finally:
        served.stop()


if __name__ == "__main__":
    make()
