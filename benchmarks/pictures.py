"""Take the pictures of the dashboard for README and the pages, of one complete run.

    python -m benchmarks pictures runs/demo

Needs Chromium. The run must be complete, with its baselines; `make demo` leaves one in runs/demo.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.show.dashboard.browser import obtain

from noisemarket.market.run_folder import read_status

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH, HIGHEST = 1280, 1700


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run.resolve()
    status = read_status(run)
    if status["state"] != "complete" or not status["baselines"]:
        sys.exit(f"{run} is not complete with its baselines: make demo.")
    with (run / "contracts.csv").open(encoding="utf-8") as file:
        sold = max(csv.DictReader(file), key=lambda row: float(row["paid"]))
    pages = {
        "run": f"#/run/{run.name}",
        "owner": f"#/owner/{run.name}/{sold['owner']}",
        "whatif": "#/whatif",
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "noisemarket", "dashboard", run.parent, "--port", "0", "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=obtain(), args=["--no-sandbox"])
            page = browser.new_page(
                viewport={"width": WIDTH, "height": 900}, reduced_motion="reduce"
            )
            page.goto(found[0])
            for name, place in pages.items():
                page.goto(found[0].partition("?")[0] + place)
                page.reload()
                page.locator("main h1, main .problem").first.wait_for(timeout=60_000)
                page.wait_for_load_state("networkidle")
                if page.locator("main .problem").count():
                    sys.exit(f"{place}: {page.locator('main .problem').first.inner_text()}")
                page.wait_for_timeout(1000)
                high = min(HIGHEST, int(page.evaluate("document.documentElement.scrollHeight")))
                clip = {"x": 0, "y": 0, "width": WIDTH, "height": high}
                file = IMAGES / f"dashboard-{name}.png"
                page.screenshot(path=str(file), clip=clip, full_page=True)  # type: ignore[arg-type]
                print(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
