"""The documentation says what is there: commands, keys, fields, examples, links and numbers."""

import ast
import re
import runpy
import sys
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console

from noisemarket.cli.app import app
from noisemarket.cli.scenario import change_keys, keys
from noisemarket.game.distributions import Distributions
from noisemarket.learning.batch import COMPILED, PlayConfig, play_batch
from noisemarket.learning.rule import Rule, Settings
from noisemarket.learning.rules import RULES
from noisemarket.mechanisms import MECHANISMS
from noisemarket.mechanisms.convergence import Recovery
from noisemarket.mechanisms.mechanism import Trace
from noisemarket.mechanisms.tally import Tally
from noisemarket.negotiation import negotiate
from noisemarket.report.comparison_report import COLUMNS
from noisemarket.report.negotiation_report import recovered, summary_table
from noisemarket.report.tables import CONTRACT_COLUMNS
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.scenario.schema import ChangeSection

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md")])
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SUBCOMMANDS = {
    f"{group} {name}": command
    for group in COMMANDS
    for name, command in getattr(COMMANDS[group], "commands", {}).items()
}
SETTLED = [name for name in MECHANISMS if name not in RULES or name in COMPILED]
"""Mechanisms that must be described; a learning rule of one's own need not until it is compiled."""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def manual() -> str:
    """What a user reads, without the generated page."""
    pages = [ROOT / "README.md", *DOCS.glob("**/*.md")]
    return "\n".join(read(page) for page in pages if page.name != "reproduction.md")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)


def section(page: Path, heading: str) -> str:
    """What stands under a heading of the second level; under none, the whole page."""
    text = read(page)
    if not heading:
        return text
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"{page.name} has no section {heading}"
    return rest.partition("\n## ")[0]


def table_rows(page: Path, heading: str = "") -> dict[str, list[str]]:
    """Every table row of a section by the code spans of its first cell."""
    rows = {}
    for line in section(page, heading).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for name in re.findall(r"`([^`]+)`", cells[0]) if cells else []:
            rows[name] = cells[1:]
    return rows


# What the command line offers


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"noisemarket {command}" in read(ROOT / "README.md")
    assert re.search(rf"`noisemarket {command}\b", read(DOCS / "reference" / "scenario.md"))


OPTIONS = sorted(
    {
        (name, option)
        for name, command in {**COMMANDS, **SUBCOMMANDS}.items()
        for parameter in command.params
        for option in (*getattr(parameter, "opts", ()), *getattr(parameter, "secondary_opts", ()))
        if option.startswith("-")
    }
    | {("", "--version"), ("", "--help"), ("", "-h")}
)


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_every_option_is_documented(command: str, option: str) -> None:
    rows = table_rows(DOCS / "reference" / "scenario.md", "Commands")
    named = [name for name in rows if name.split()[0] == option]
    assert named, f"{command} {option} has no row in docs/scenario.md"
    of = rows[named[0]][0]
    assert f"`{command}`" in of or of.startswith("all") or not command, f"{option}: {of}"


def test_no_option_is_made_up() -> None:
    real = {option for _, option in OPTIONS}
    benchmarks = {"--million", "--plot", "--markdown", "--postgres", "--quick"}
    flower = {
        *("--host", "--port", "--database", "--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation", "--name"),
        *("--superlink", "--root-certificates", "--auth-supernode-private-key"),
        *("--node-config", "--stream", "--run-config", "--trusted-entities"),
        "--fleet-api-address",
    }
    tools = benchmarks | flower | {"--strict"}  # of mypy
    for page in PAGES:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", read(page)):
            assert option in real | tools, f"{page.name} speaks of {option}"


# What a scenario may say


@pytest.mark.parametrize("row", keys(), ids=lambda row: row[0])
def test_every_key_is_documented_with_its_default(row: tuple[str, str, str, str]) -> None:
    key, default, symbol, _ = row
    cells = table_rows(DOCS / "reference" / "scenario.md", "Every key")[key]
    assert cells[1].strip("`") == symbol
    if re.fullmatch(r"[\d.]+|[a-z_]+", default):
        shown = default if default.isalpha() or "_" in default else f"{float(default):g}"
        assert cells[0].split()[0].strip("`") == shown


def test_no_key_is_made_up() -> None:
    real = {row[0] for row in (*keys(), *change_keys())}
    sections = "game|population|learning|menu|changes"
    for page in PAGES:
        for key in re.findall(rf"`(({sections})\.[a-z_]+)`", read(page)):
            assert key[0] in real, f"{page.name} speaks of {key[0]}"


@pytest.mark.parametrize("name", ChangeSection.model_fields)
def test_every_key_of_a_change_is_documented(name: str) -> None:
    assert f"changes.{name}" in table_rows(DOCS / "reference" / "scenario.md", "Changes")


@pytest.mark.parametrize("name", Distributions.BY_NAME)
def test_every_distribution_is_documented(name: str) -> None:
    (parameters,) = table_rows(DOCS / "reference" / "scenario.md", "Distributions")[name]
    for field in fields(Distributions.BY_NAME[name]):  # type: ignore[arg-type]
        assert f"`{field.name}`" in parameters


@pytest.mark.parametrize("name", SETTLED)
def test_every_mechanism_is_documented(name: str) -> None:
    rows = table_rows(DOCS / "explanation" / "mechanisms.md", "The mechanisms")
    assert rows[name][0] == MECHANISMS[name].knows
    assert name in table_rows(ROOT / "README.md", "Mechanisms")


@pytest.mark.parametrize("name", COMPILED)
def test_every_rule_is_documented(name: str) -> None:
    assert name in table_rows(DOCS / "explanation" / "learning.md", "The rules")


# What a run leaves behind


def test_every_field_of_the_json_is_documented() -> None:
    summary = negotiate(Scenario.from_preset("market", owners=2), mechanism="uniform").summary()
    described = section(DOCS / "reference" / "scenario.md", "JSON")
    inner = [field.name for kind in (Tally, Recovery) for field in fields(kind)]
    for key in [*summary, *inner, *COLUMNS]:
        assert f"`{key}`" in described, f"JSON key {key}"
    for field in fields(Tally):
        assert field.name in table_rows(DOCS / "explanation" / "mechanisms.md", "What is measured")


def test_every_column_is_documented() -> None:
    page = read(DOCS / "reference" / "scenario.md")
    for name in [*CONTRACT_COLUMNS, *(field.name for field in fields(Trace))]:
        assert f"`{name}`" in page, f"column {name}"


# Examples


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.name)
def test_example_loads(file: Path) -> None:
    environment = load_scenario(file).environment()
    assert len(environment) >= 1
    assert f"examples/{file.name}" in read(file), "its comment says how to run it"


def test_blocks_are_what_they_say() -> None:
    for page in PAGES:
        for text in blocks(page, "toml"):
            tomllib.loads(text)
        for text in blocks(page, "python"):
            if not text.startswith((" ", "def act", "class Mechanism")):  # excerpts
                ast.parse(text)


def test_the_readme_shows_the_example() -> None:
    shown, changes = (tomllib.loads(text) for text in blocks(ROOT / "README.md", "toml"))
    assert shown == tomllib.loads(read(EXAMPLES / "market.toml"))
    assert changes["changes"] == tomllib.loads(read(EXAMPLES / "changing.toml"))["changes"]
    (rows,) = blocks(ROOT / "README.md", "csv")
    assert read(EXAMPLES / "owners.csv").startswith(rows)


def test_the_worked_rule_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = (
        block
        for block in blocks(DOCS / "explanation" / "learning.md", "python")
        if "class Bolt" in block
    )
    names: dict[str, type[Rule]] = {}
    exec(compile(text, "boltzmann.py", "exec"), names)
    monkeypatch.setitem(RULES, "boltzmann", names["Boltzmann"])
    environment = Scenario.from_preset("market", owners=3, J=4, K=5).environment()
    brief = PlayConfig("boltzmann", Settings(exploration=0.02), iterations=400, seed=1)
    batch = play_batch(brief, [environment.games()], [0], environment.population.key)
    np.testing.assert_allclose(batch.owner_policies.sum(axis=2), 1.0)
    assert batch.counts[-1, 4] > batch.counts[0, 4], "it learns to make deals"


# The pages among themselves


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", read(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    assert not [page.name for page in PAGES if page.name != "README.md" and page not in linked]


def test_functions_named_in_the_docs_exist() -> None:
    named = re.findall(r"`([a-z_/]+)\.py:([A-Za-z_.]+)`", manual())
    assert len(named) > 20
    for file, path in named:
        found: object = import_module(f"noisemarket.{file.replace('/', '.')}")
        for name in path.split("."):
            found = getattr(found, name)


@pytest.mark.parametrize(
    "path",
    [*PAGES, *(file for file in sorted(EXAMPLES.iterdir()) if file.is_file())],
    ids=lambda path: path.name,
)
def test_nothing_of_the_writers_machine(path: Path) -> None:
    text = read(path)
    assert "shared/" not in text
    assert not re.findall(r"(?<![\w.])/(?:work|home|root|tmp|mnt|Users|usr|var)\b\S*", text)


def test_the_readme_is_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= 240


# Numbers. These play, so they take some seconds, most of them to compile.


@pytest.mark.slow
def test_the_readme_shows_what_negotiate_prints() -> None:
    result = negotiate(Scenario.from_preset("market"))
    console = Console(width=110)
    with console.capture() as captured:
        console.print(summary_table(result))
    printed = "\n".join(line.rstrip() for line in captured.get().splitlines())
    assert printed in read(ROOT / "README.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTLED)
def test_the_readme_has_the_figures_of_the_mechanisms(name: str) -> None:
    result = negotiate(Scenario.from_preset("market"), mechanism=name).learned
    rows = table_rows(ROOT / "README.md", "Mechanisms")
    shown = [float(cell) for cell in rows[name][1:4]]
    expected = [result.mean_saving, result.mean_payment, result.curator_gain]
    np.testing.assert_allclose(shown, expected, atol=0.0051, rtol=0)


@pytest.mark.slow
def test_the_readme_has_the_recoveries() -> None:
    lines = read(ROOT / "README.md").splitlines()
    scenario = load_scenario(EXAMPLES / "changing.toml")
    for learner, title in (("dypp", "DyPP"), ("phc", "plain"), ("q_learning", "Q-learning")):
        result = negotiate(scenario, mechanism=learner)
        (row,) = (line for line in lines if re.match(rf"\| {title}.*never", line))
        cells = [recovered(recovery) for recovery in result.recoveries]
        assert f"| {' | '.join(cells)} | {result.learned.curator_gain:.3f} |" in row


@pytest.mark.slow
def test_the_sweep_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["sweep.py", "--seeds", "1", "--owners", "2", "--iterations", "60"]
    monkeypatch.setattr(sys, "argv", given)
    runpy.run_path(str(EXAMPLES / "sweep.py"), run_name="__main__")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header in read(DOCS / "explanation" / "learning.md")
    assert len(lines) == 21
