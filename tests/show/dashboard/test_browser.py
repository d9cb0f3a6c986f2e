"""The pages in a real browser: what a user does, by mouse and keyboard, on a screen and a phone.

One server and one browser serve all tests. Pictures of every page go to build/dashboard.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.tampering import drop_guards, execute
from tests.show.dashboard import browser as chromium
from tests.show.dashboard.served import TOKEN, Served, process_of

playwright = pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, Locator, Page, expect  # noqa: E402

from noisemarket.files import private_folder  # noqa: E402
from noisemarket.market.run_folder import RunFolder, this_process  # noqa: E402
from noisemarket.owner.folder import STATEMENT, OwnerFolder, owner_folder  # noqa: E402
from noisemarket.privacy.accountant import PrivacyBudget  # noqa: E402
from noisemarket.show.account_report import write_accounts  # noqa: E402

pytestmark = pytest.mark.process

PICTURES = Path(__file__).resolve().parents[2] / "build" / "dashboard"
ARGUMENTS = [
    "--no-sandbox",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
SCREENS = {"light": (1280, 800), "dark": (1280, 800), "phone": (390, 844)}
LONG = 300_000
PAGES = {
    "runs": "#/runs",
    "run": "#/run/market",
    "game": "#/run/game",
    "owner": "#/owner/market/2",
    "new": "#/new",
    "whatif": "#/whatif",
    "compare": "#/compare?run=compared",
    "season": "#/run/season",
    "job": "#/owner/season%20job%2002/0",
    "reproduction": "#/run/reproduction",
    "missing": "#/run/none",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    place = chromium.obtain()
    if place is None:
        pytest.skip("needs Chromium (Debian: the package chromium)")
    with playwright.sync_playwright() as started:
        one = started.chromium.launch(executable_path=place, args=ARGUMENTS)
        yield one
        one.close()


@pytest.fixture(scope="module")
def served(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("served") / "runs"
    shutil.copytree(runs, root)
    one = Served(root)
    yield one
    one.stop()


def opened(browser: Browser, served: Served, path: str, screen: str = "light") -> Page:
    """A page as a new user sees it; what it says on the console, or asks of others, is kept."""
    width, height = SCREENS[screen]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if screen == "dark" else "light",
        reduced_motion="reduce",
        accept_downloads=True,
    )
    port = served.address.rstrip("/").rpartition(":")[2]
    cookie = {"name": f"noisemarket-{port}", "value": TOKEN, "url": served.address}
    context.add_cookies([cookie])  # type: ignore[list-item]
    page = context.new_page()
    page.set_default_timeout(LONG)
    page.asked, page.complaints = [], []  # type: ignore[attr-defined]
    page.on("request", lambda request: page.asked.append(request.url))  # type: ignore[attr-defined]
    page.on("pageerror", lambda problem: page.complaints.append(str(problem)))  # type: ignore[attr-defined]
    page.on("console", lambda said: said.type == "error" and page.complaints.append(said.text))  # type: ignore[attr-defined]
    page.goto(served.address + path)
    ready(page)
    return page


def ready(page: Page) -> None:
    """The page is there: it has a title, or says what went wrong."""
    expect(page.locator("main h1, main .problem").first).to_be_visible(timeout=LONG)


def done(page: Page, served: Served, *, killed: bool = False) -> None:
    """Close a page: it asked nobody else, and nothing went wrong in it but a server's death."""
    others = [url for url in page.asked if not url.startswith((served.address, "data:", "blob:"))]  # type: ignore[attr-defined]
    assert others == []
    meant = (
        "Failed to load resource",
        "The server does not answer" if killed else "Failed to load",
    )
    complaints = [one for one in page.complaints if not one.startswith(meant)]  # type: ignore[attr-defined]
    assert complaints == []
    page.context.close()


def fact(page: Page, name: str) -> Locator:
    return page.locator(".facts div", has=page.locator("dt", has_text=name)).locator("dd")


def test_a_run_is_started_watched_stopped_and_resumed(browser: Browser, served: Served) -> None:
    """From the form to the end; meanwhile a reload, a second user, and a server that is killed."""
    page = opened(browser, served, "#/new")
    page.get_by_text("More settings").click()
    for label, value in {"Name": "live", "Owners": "4", "Rounds": "200"}.items():
        page.get_by_label(re.compile(rf"^{label}")).first.fill(value)
    page.get_by_label("Compare with").select_option("0")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("h1")).to_have_text("live", timeout=LONG)
    chart = page.get_by_role("img", name=re.compile("Accuracy over the rounds"))
    expect(chart).to_have_attribute("aria-label", re.compile("DyPP"), timeout=LONG)
    expect(page.get_by_text("a single draw of the noise")).to_be_visible()
    seen = page.locator("#main .facts")
    expect(seen).to_contain_text(re.compile(r"Round[2-9] of 200|Round\d\d of 200"), timeout=LONG)
    run = process_of(served.root / "live")
    run.suspend()
    before = int(re.findall(r"Round(\d+) of", seen.inner_text().replace("\n", ""))[0])
    page.screenshot(path=PICTURES / "live-light.png", full_page=True)
    page.reload()
    other = opened(browser, served, "#/run/live", "phone")
    for one in (page, other):
        expect(one.locator("#main .facts")).to_contain_text("of 200", timeout=LONG)
        now = one.locator("#main .facts").inner_text().replace("\n", "")
        assert int(re.findall(r"Round(\d+) of", now)[0]) >= before

    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stopping …")).to_be_disabled()
    run.resume()
    expect(page.locator(".head .tag").first).to_have_text("incomplete", timeout=LONG)
    expect(other.locator(".head .tag").first).to_have_text("incomplete", timeout=LONG)
    served.stop(kill=True)
    expect(page.locator(".lost")).to_be_visible(timeout=LONG)
    served.start()
    expect(page.locator(".lost")).to_have_count(0, timeout=LONG)
    page.get_by_role("button", name="Resume").click()
    for one in (page, other):
        expect(one.locator(".head .tag").first).to_have_text("complete", timeout=LONG)
        expect(one.locator("#main .facts")).to_contain_text(re.compile("Round\n?200 of 200"))
    expect(page.get_by_text("verified: sound")).to_be_visible(timeout=LONG)
    assert (served.root / "live" / "summary.json").is_file()
    done(page, served, killed=True)
    done(other, served, killed=True)


def test_a_game_grows_while_owners_play(browser: Browser, served: Served) -> None:
    """The lines that a real game wrote come one after the other."""
    folder = served.root / "playing"
    shutil.copytree(served.root / "game", folder)
    (folder / "trace.csv").rename(folder / "later")
    first, *rest = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text(first)
    status = json.loads((folder / "status.json").read_text())
    running = status | {"state": "running", "process": this_process()}
    (folder / "status.json").write_text(json.dumps(running))

    page = opened(browser, served, "#/run/playing")
    chart = page.get_by_role("img", name=re.compile("Saving over the iterations"))
    expect(chart).to_have_attribute("aria-label", re.compile("exact equilibrium"), timeout=LONG)
    expect(page.get_by_text("Means over the 1 of 4 owners")).to_have_count(2)
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    before = chart.get_attribute("aria-label")
    with (folder / "events.jsonl").open("a") as file:
        file.writelines(rest)
    expect(page.get_by_text("Means over the 4 of 4 owners")).to_have_count(2, timeout=LONG)
    assert chart.get_attribute("aria-label") != before
    (folder / "later").rename(folder / "trace.csv")
    (folder / "status.json").write_text(json.dumps(status))
    expect(page.get_by_text("Means over all owners")).to_have_count(2, timeout=LONG)
    expect(page.locator(".head .tag").first).to_have_text("complete")
    shutil.rmtree(folder)
    expect(page.locator(".lost")).to_contain_text("folder of this run is gone", timeout=LONG)
    done(page, served)


def test_a_page_that_is_refused_says_why_and_comes_back(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/runs")
    page.route("**/state", lambda route: route.fulfill(status=503))
    page.goto(served.address + "#/run/market")
    expect(page.locator(".lost")).to_contain_text("answered 503", timeout=LONG)
    page.unroute("**/state")
    expect(page.locator(".lost")).to_have_count(0, timeout=LONG)
    expect(page.locator(".contracts tbody tr")).to_have_count(3, timeout=LONG)

    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_role("heading")).to_have_text("This dashboard needs its token")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This token is wrong", timeout=LONG)
    page.get_by_label("Token").fill(TOKEN)
    page.screenshot(path=PICTURES / "sign-in-light.png")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("Runs", timeout=LONG)
    assert TOKEN not in page.url
    done(page, served)


def test_a_refused_form_says_why_and_where(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/new")
    more = page.locator(".more")
    page.get_by_text("More settings").click()
    page.get_by_label("Floor").fill("-1")
    page.get_by_label("Name").fill("market")
    page.get_by_text("More settings").click()
    page.get_by_label("Owners").fill("0")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_label("Owners")).to_be_focused(timeout=LONG)
    for label, words in {"Owners": "Give a whole number", "Floor": "Give a number of at least 0",
                         "Name": "exists already"}.items():  # fmt: skip
        field = page.get_by_label(label).first
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(words))
    expect(more).to_have_attribute("open", "")
    page.screenshot(path=PICTURES / "refused-light.png", full_page=True)
    done(page, served)


def test_the_form_waits_for_a_run_that_measures_first(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/new")
    answer = json.dumps({"name": "market", "begun": False})
    page.route("**/api/runs", lambda route: route.fulfill(status=201, body=answer))
    page.get_by_role("button", name="Start").click()
    expect(page.locator("h1")).to_have_text("market", timeout=LONG)
    done(page, served)


def test_contracts_are_sorted_filtered_downloaded_and_opened(
    browser: Browser, served: Served, tmp_path: Path
) -> None:
    page = opened(browser, served, "#/run/market")
    table = page.locator(".contracts table")
    expect(table.locator("tbody tr")).to_have_count(3, timeout=LONG)
    page.get_by_role("button", name="Epsilon").press("Enter")
    expect(page.get_by_role("columnheader", name="Epsilon")).to_have_attribute(
        "aria-sort", "descending"
    )
    shown = [float(text) for text in table.locator("tbody tr td:nth-child(5)").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    page.get_by_label("State").select_option("broken")
    expect(table.locator("tbody tr")).to_have_count(1)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download CSV").click()
    waiting.value.save_as(tmp_path / "contracts.csv")
    with (tmp_path / "contracts.csv").open() as file:
        assert [row["owner"] for row in csv.DictReader(file)] == ["2"]
    table.get_by_role("link", name="2").click()
    expect(page.locator("h1")).to_have_text("Owner 2", timeout=LONG)
    expect(page.get_by_text("The contract is broken")).to_be_visible()
    expect(page.locator(".recorded")).to_contain_text("is sound", timeout=LONG)
    for part in ("Privacy statement", "Wallet: all jobs so far", "Contract"):
        expect(page.get_by_role("heading", name=part, exact=True)).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator(".top")).to_be_hidden()
    expect(page.get_by_text("curator signature")).to_be_visible()
    expect(page.get_by_text("Entries on the ledger").first).to_be_hidden()
    page.screenshot(path=PICTURES / "owner-printed.png", full_page=True)
    done(page, served)


def test_a_changed_ledger_is_told(browser: Browser, served: Served) -> None:
    folder = served.root / "changed"
    shutil.copytree(served.root / "market", folder)
    drop_guards(ledger := str(folder / "ledger.sqlite"))
    execute(ledger, "UPDATE noisemarket_entries SET body = '{}' WHERE seq = 3")
    page = opened(browser, served, "#/run/changed")
    told = page.get_by_role("region", name="Ledger")
    expect(told).to_contain_text("Verification failed: entry 3", timeout=LONG)
    expect(told).not_to_contain_text("undefined")
    shutil.rmtree(folder)
    done(page, served)


def test_a_run_is_printed_with_headings_and_light_charts(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/run/market", "dark")
    expect(page.locator(".contracts tbody tr")).to_have_count(3, timeout=LONG)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Epsilon")).to_be_visible()
    expect(page.locator(".tools").first).to_be_hidden()
    for event, theme in (("beforeprint", "light"), ("afterprint", "dark")):
        page.evaluate("(name) => dispatchEvent(new Event(name))", event)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
    done(page, served)


def test_an_owner_sees_its_wallet(browser: Browser, served: Served, tmp_path: Path) -> None:
    folder = OwnerFolder("1", owner_folder(tmp_path, "1"))
    private_folder(folder.path)
    folder.keep_private({"rho_budget": 2.0})
    wallet, terms = folder.wallet(), PrivacyBudget("1", "per_record", 0.1, 0.02, rho_cap=0.5)
    wallet.reserve("job", terms, "2999-01-01T00:00:00+00:00", 2.0)
    wallet.hold("job")
    wallet.spend("job", 1, "release", 0.125)
    for job, paid, currency in (("before", 2_500_000, "EUR"), ("other", 1_000_000, "CHF")):
        said = json.dumps({"paid_micro": paid, "currency": currency})
        (folder.job(job) / STATEMENT).write_text(said)
    write_accounts(RunFolder(served.root / "market"), tmp_path)
    page = opened(browser, served, "#/owner/market/1")
    account = page.get_by_role("region", name="All jobs so far")
    for fact in ("Jobs\n1", "Rho\n0.125", "reserved\n0.375", "left\n1.5", "2.50 EUR", "1.00 CHF"):
        expect(account).to_contain_text(fact, use_inner_text=True, timeout=LONG)
    expect(account).to_contain_text("75 rounds at sigma 0.1")
    expect(page.get_by_text("Its uploads lowered the test loss by")).to_be_visible()
    expect(page.get_by_text("pay does not depend on it")).to_be_visible()
    done(page, served)


def test_a_job_of_a_season_is_not_private_nor_resumed_alone(
    browser: Browser, served: Served
) -> None:
    file = served.root / "season/jobs/02/status.json"
    whole = file.read_text()
    file.write_text(json.dumps(json.loads(whole) | {"state": "incomplete"}))
    page = opened(browser, served, "#/run/season%20job%2002")
    expect(page.locator(".head .tag").first).to_have_text("incomplete", timeout=LONG)
    expect(page.get_by_text("NOT PRIVATE: noise from a fixed seed.")).to_be_visible()
    caption = page.get_by_text("trained under the contracts. Each curve is a single draw")
    expect(caption).to_be_visible(timeout=LONG)  # with nothing beside it
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    file.write_text(whole)
    done(page, served)


def test_a_slider_moves_the_answers(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/whatif")
    answer = page.locator("#answers")
    expect(answer.locator("tbody tr")).to_have_count(4, timeout=LONG)
    row = answer.locator("[data-answer=clock]")
    before = row.inner_text()
    page.get_by_label("Highest payment").press("ArrowRight")
    expect(row).not_to_have_text(before, use_inner_text=True, timeout=LONG)
    slider = page.get_by_label("Weight of quality")
    box, moved = slider.bounding_box(), row.inner_text()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.6 * box["width"], middle)
    page.mouse.down()
    for share in (0.7, 0.8, 0.9):
        page.mouse.move(box["x"] + share * box["width"], middle)
    page.mouse.up()
    expect(row).not_to_have_text(moved, use_inner_text=True, timeout=LONG)
    page.get_by_role("button", name="Back to the preset").click()
    expect(row).to_have_text(before, use_inner_text=True, timeout=LONG)
    page.set_viewport_size({"width": 390, "height": 844})
    train = page.get_by_role("button", name="Train the clock auction")
    train.scroll_into_view_if_needed()
    expect(row).to_be_in_viewport()  # the result stays above the sliders
    begun = {"name": "demo", "begun": True}  # a whole market would train for minutes
    page.route("**/runs", lambda route: route.fulfill(json=begun))
    with page.expect_request("**/runs") as asked:
        train.click()
    assert asked.value.post_data_json["settings"] == {"mechanism": "clock"}
    done(page, served)


def test_accuracy_is_shown_where_the_curves_end(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/whatif")
    lowest, highest = page.evaluate(
        """async () => {
          const { Chart } = await import("/static/charts.js");
          const chart = new Chart({ title: "", ends: true });
          chart.series = [{ y: [10, 88] }, { y: [12, 84] }];
          return chart.range([[1, 2], [10, 88], [12, 84]]);
        }"""
    )
    assert (lowest, highest) == (74.0, 90.0)  # not from 0: the first rounds hide the last
    done(page, served)


def test_a_comparison_is_watched_until_it_is_complete(browser: Browser, served: Served) -> None:
    folder = served.root / "comparing"
    shutil.copytree(served.root / "compared", folder)
    whole = (folder / "status.json").read_text()
    running = json.loads(whole) | {"state": "running", "process": this_process()}
    (folder / "status.json").write_text(json.dumps(running))
    page = opened(browser, served, "#/run/comparing")
    expect(page.get_by_text("Still running")).to_be_visible(timeout=LONG)
    expect(page.get_by_role("button", name="Stop")).to_be_visible(timeout=LONG)
    (folder / "status.json").write_text(whole)
    expect(page.locator("h1")).to_have_text("Compare", timeout=LONG)
    expect(page.locator("table tbody tr")).to_have_count(3, timeout=LONG)
    shutil.rmtree(folder)
    done(page, served)


def test_two_runs_are_compared(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/compare")
    expect(page.get_by_role("button", name="Compare these")).to_be_disabled()
    page.goto(served.address + "#/runs")
    for name in ("market", "game"):
        page.get_by_label(f"Choose {name} to compare", exact=True).check()
    page.get_by_role("button", name="Compare 2").click()
    expect(page.locator("h1")).to_have_text("Compare", timeout=LONG)
    expect(page.locator("table tbody tr")).to_have_count(2, timeout=LONG)
    picture = page.get_by_role("img", name=re.compile("Accuracy over money"))
    expect(picture).to_have_attribute("aria-label", re.compile("market · exact equilibrium"))
    expect(page.locator(".warn")).to_contain_text(
        "differ in model, data, owners, rounds and currency"
    )
    expect(page.get_by_role("columnheader", name="Rounds")).to_be_visible()
    done(page, served)


def test_runs_are_found_and_sorted_by_keyboard(browser: Browser, served: Served) -> None:
    page = opened(browser, served, "#/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/runs")  # still this page
    page.get_by_label("Find").fill("game")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Find").fill("nothing like it")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.get_by_label("Find").fill("")
    page.locator("[data-sort=name]").focus()
    page.keyboard.press("Enter")
    names = page.locator("tbody tr th a")
    assert names.all_inner_texts() == sorted(names.all_inner_texts())
    page.get_by_role("link", name="market", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("market", timeout=LONG)
    expect(page.locator("main")).to_be_focused()
    done(page, served)


def test_an_empty_folder_says_what_to_do(
    browser: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    empty = Served(tmp_path / "runs")
    request.addfinalizer(empty.stop)
    page = opened(browser, empty, "#/runs")
    expect(page.get_by_text("No runs yet")).to_be_visible()
    page.screenshot(path=PICTURES / "empty-light.png", full_page=True)
    page.get_by_role("link", name="Start a market").click()
    expect(page.locator("h1")).to_have_text("New run", timeout=LONG)
    done(page, empty)


CUT = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"

UNNAMED = """() => [...document.querySelectorAll(
  'input, select, button, a, [role=img], [role=progressbar], [role=region], table')]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.ariaLabel || one.labels?.length || one.innerText?.trim() || one.title
    || one.getAttribute('aria-labelledby')))
  .map((one) => one.outerHTML.slice(0, 120))"""

FAINT = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).slice(0, 3)
      .map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const under = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const fill = getComputedStyle(one).backgroundColor;
      if (fill !== 'rgba(0, 0, 0, 0)' && fill !== 'transparent') return fill;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const text = [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!text || !node.offsetParent || node.disabled || node.closest('.sr, option')) continue;
    const [x, y] = [light(getComputedStyle(node).color), light(under(node))];
    const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.outerHTML.slice(0, 80)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_fits_its_screen_and_can_be_read(
    browser: Browser, served: Served, screen: str
) -> None:
    """Nothing sticks out, everything has a name, and text stands out from what is behind it."""
    page = opened(browser, served, "#/runs", screen)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, path in PAGES.items():
        page.goto(served.address + path)
        ready(page)
        expect(page.locator(".loading")).to_have_count(0, timeout=LONG)
        page.wait_for_timeout(250)  # charts are drawn on the next frame
        if name in ("runs", "compare", "season") and screen != "phone":
            assert page.locator(".scroll").evaluate_all(CUT) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen][0], name
        assert page.evaluate(UNNAMED) == [], name
        shown = page.locator("main").inner_text()
        assert re.findall(r"NaN|undefined|\bnull\b|\[object", shown) == [], name
        assert page.evaluate(FAINT) == [], name
        assert page.locator("h1").count() == (0 if name == "missing" else 1), name
        page.screenshot(path=PICTURES / f"{name}-{screen}.png", full_page=True)
    expect(page.get_by_role("alert")).to_contain_text("There is no such run")
    done(page, served)
