"""The documentation says what is there: generated pages, names, links, examples, figures."""

import ast
import importlib.util
import json
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import typer

from noisemarket.cli.app import app
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.dypp import PlayConfig, play_batch
from noisemarket.pricing.rule import Rule, Settings
from noisemarket.scenario import Scenario, load_scenario

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PAGES = sorted(
    path
    for kind in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md", "deploy/*.md")
    for path in ROOT.glob(kind)
)
SCRIPTS = [*ROOT.glob("benchmarks/*.py"), *EXAMPLES.glob("*.py"), *ROOT.glob("tests/*/*.py")]
FLOWER = {
    *("--host", "--port", "--database", "--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"),
    *("--enable-supernode-auth", "--disable-runtime-dependency-installation", "--name"),
    *("--superlink", "--root-certificates", "--auth-supernode-private-key", "--folder"),
    *("--node-config", "--stream", "--run-config", "--trusted-entities", "--fleet-api-address"),
}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)


def rows(page: Path) -> dict[str, list[str]]:
    """Every table row of a page by the code span or text of its first cell."""
    found = {}
    for line in read(page).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells:
            found[cells[0].strip("`")] = cells[1:]
    return found


# The reference


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("_generate", DOCS / "_generate.py")
    assert spec is not None
    assert spec.loader is not None
    module, path = importlib.util.module_from_spec(spec), list(sys.path)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path


def test_generated_pages_are_current(generator: ModuleType) -> None:
    assert generator.main(check=True) == [], "run: python docs/_generate.py"


def test_a_field_without_a_meaning_is_refused(generator: ModuleType, tmp_path: Path) -> None:
    output = sys.modules["_reference.output"]
    text = read(output.SOURCE).replace('"curator_gain" = ', '"other_gain" = ', 1)
    changed = tmp_path / "fields.toml"
    changed.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "SOURCE", changed)
        with pytest.raises(ValueError, match="curator_gain"):
            output.output_page()


def options() -> set[str]:
    """Every option of every command."""
    found = {"--help", "--version", "--install-completion"}
    groups = [typer.main.get_command(app)]
    for group in groups:
        for command in group.commands.values():  # type: ignore[attr-defined]
            if hasattr(command, "commands"):
                groups.append(command)
            for one in command.params:
                found |= {name for name in (*one.opts, *one.secondary_opts) if name[0] == "-"}
    return found


def test_options_in_the_text_exist() -> None:
    known = options() | FLOWER | {"--strict", "--fix", "--cov", "--editable"}  # of other tools
    for script in SCRIPTS:
        known |= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', read(script)))
    for page in PAGES:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", read(page)):
            assert option in known, f"{page.name} mentions {option}"


def test_keys_in_the_text_exist() -> None:
    known = set(re.findall(r"^- `([\w.]+)` = ", read(DOCS / "reference" / "scenario.md"), re.M))
    assert "game.payment_levels" in known
    sections = "game|population|learning|menu|training|privacy|market|changes"
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # also names what was
            continue
        for key in re.findall(rf"`((?:{sections})\.[a-z_]+)`", read(page)):
            if not key.endswith((".json", ".toml", ".md", ".py", ".journal")):
                assert key in known, f"{page.name} mentions {key}"


def test_names_of_the_code_in_the_text_exist() -> None:
    named = [one for page in PAGES for one in re.findall(r"`([a-z_/]+)\.py:([\w.]+)`", read(page))]
    assert len(named) > 20
    for file, path in named:
        found: object = import_module(f"noisemarket.{file.replace('/', '.')}")
        for name in path.split("."):
            found = getattr(found, name)


# The pages among themselves


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", read(page))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in links(page):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    pages = [page for page in PAGES if EXAMPLES not in page.parents and page.name != "README.md"]
    assert not [page.name for page in pages if page not in linked]


def test_nothing_of_the_writers_machine() -> None:
    files = [*PAGES, *(file for file in EXAMPLES.iterdir() if file.is_file())]
    for path in [*files, *DOCS.glob("_*.*"), *DOCS.glob("_reference/*.py"), ROOT / "mkdocs.yml"]:
        text = read(path)
        assert "shared/" not in text
        named = re.findall(r"(?<![\w.])/(?:work|home|root|tmp|mnt|Users|usr|var)\b\S*", text)
        assert not named, f"{path.name}: {named}"


# Examples


def test_examples_load() -> None:
    for file in sorted(EXAMPLES.glob("*.toml")):
        assert len(load_scenario(file).environment()) >= 1
        assert f"examples/{file.name}" in read(file), "its comment says how to run it"


def test_blocks_are_what_they_say() -> None:
    for page in PAGES:
        for text in blocks(page, "toml"):
            tomllib.loads(text)
        for text in blocks(page, "python"):
            ast.parse(text)


def test_pages_show_the_examples() -> None:
    page = DOCS / "how-to" / "scenario.md"
    shown, changes = blocks(page, "toml")
    assert tomllib.loads(shown) == tomllib.loads(read(EXAMPLES / "market.toml"))
    (owners,) = blocks(page, "csv")
    assert read(EXAMPLES / "owners.csv").startswith(owners)
    assert (
        tomllib.loads(changes)["changes"]
        == (tomllib.loads(read(EXAMPLES / "changing.toml"))["changes"])
    )


@pytest.mark.compiled
def test_the_worked_rule_plays() -> None:
    page = DOCS / "how-to" / "extend.md"
    (text,) = (block for block in blocks(page, "python") if "class Boltzmann" in block)
    names: dict[str, type[Rule]] = {}
    exec(compile(text, "boltzmann.py", "exec"), names)
    environment = Scenario.from_preset("market", owners=3, J=4, K=5, model="cnn").environment()
    config = PlayConfig(Settings(exploration=0.02), iterations=400, seed=1)
    batch = play_batch(
        names["Boltzmann"], config, [environment.games()], [0], environment.population.key
    )
    np.testing.assert_allclose(batch.owner_policies.sum(axis=2), 1.0)
    assert batch.counts[-1, 4] > batch.counts[0, 4], "it learns to make deals"


# Figures: what the commands print


def test_the_table_of_mechanisms_has_them_all() -> None:
    table = rows(DOCS / "explanation" / "mechanisms.md")
    assert {name for name in table if name in MECHANISMS} == MECHANISMS.keys()


@pytest.mark.compiled
def test_the_sweep_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["sweep.py", "--seeds", "1", "--owners", "2", "--iterations", "60"]
    monkeypatch.setattr(sys, "argv", given)
    runpy.run_path(str(EXAMPLES / "sweep.py"), run_name="__main__")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("| learning rate | optimism | WoLF-PHC signed |")
    assert len(lines) == 21
    monkeypatch.setattr(sys, "argv", [*given, "--best"])
    runpy.run_path(str(EXAMPLES / "sweep.py"), run_name="__main__")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == "| | 0.05 | 0.1 | 0.2 | 0.4 | 0.8 |"
    assert len(lines) == 15


def test_stored_results_say_how_when_and_where() -> None:
    """Results that are added to, run after run, say it in each of their rows."""
    for file in (ROOT / "benchmarks" / "results").glob("*.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        for made in [document] if "command" in document else document["rows"]:
            assert {"command", "date", "machine"} <= made.keys(), file.name
            assert re.search(r"\d+ cores, .*Python 3", made["machine"]), file.name
