"""The rules of the house, read off the syntax tree of every source file.

Who may import whom, what the pure rooms (game, pricing) may touch, how long a file may be, and
that each says what it is for. ``complaints`` judges one file given as text, so the tests below can
also feed it bad ones and see it object.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = "noisemarket"
ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / PACKAGE
FILES = sorted(PurePosixPath(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py"))

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

PUBLIC_NAMES = "__init__"
"""The room that ``src/noisemarket/__init__.py`` is: it shows what the others hold."""

ROOMS_BELOW: dict[str, set[str]] = {
    "errors": set(),
    "machine": set(),
    "formats": set(),
    "files": {"errors"},
    "parts": {"errors"},
    "game": {"errors", "federated"},
    "privacy": {"errors", "files", "formats"},
    "federated": {"errors", "files", "formats", "machine", "privacy", "parts"},
    "pricing": {"errors", "federated", "formats", "game", "parts"},
    "ledger": {"errors", "files", "formats", "parts"},
}
ROOMS_BELOW["scenario"] = {"errors", "federated", "files", "game", "pricing", "parts"}
ROOMS_BELOW["owner"] = {
    *("errors", "federated", "files", "game", "formats", "ledger", "pricing", "privacy")
}
ROOMS_BELOW["market"] = {*ROOMS_BELOW}
ROOMS_BELOW["flower"] = {*ROOMS_BELOW}
ROOMS_BELOW["study"] = {*ROOMS_BELOW} - {"flower"}
ROOMS_BELOW["show"] = {*ROOMS_BELOW} - {"flower"}
ROOMS_BELOW[PUBLIC_NAMES] = {*ROOMS_BELOW}
ROOMS_BELOW["cli"] = {*ROOMS_BELOW}
ROOMS_BELOW["__main__"] = {*ROOMS_BELOW}
"""Each room and the rooms it may import besides itself; the last three see all that stand above
them in this table. A new room needs a line here."""

PURE_ROOMS = {"game", "pricing"}
PURE_LIBRARIES = {"numpy", "scipy", "numba"}
IMPURE_MODULES = {
    *("os", "pathlib", "io", "shutil", "tempfile", "glob", "fileinput", "sqlite3", "pickle"),
    *("time", "datetime", "calendar", "zoneinfo"),
    *("random", "secrets", "uuid"),
    *("socket", "ssl", "http", "urllib", "subprocess"),
}
"""Standard modules for files, the clock, hidden randomness and the outside world."""

NUMPY_FILE_CALLS = {
    *("load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
    *("save", "savez", "savez_compressed", "savetxt"),
}

FLOWER_IN_PUBLIC = {
    *("flwr.app", "flwr.clientapp", "flwr.clientapp.mod"),
    *("flwr.serverapp", "flwr.serverapp.strategy", "flwr.simulation"),
}
"""What may be imported of Flower, here and in the examples: the rest changes without notice."""


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, which several tests go through."""
    return [*ast.walk(tree)]


def complaints(file: PurePosixPath, source: str) -> list[str]:
    """All that is wrong with this file, by its path inside the package and its text."""
    tree = parsed(source)
    room = file.parts[0].removesuffix(".py")
    found = []
    if room not in ROOMS_BELOW:
        found.append(f"room {room!r} has no line in ROOMS_BELOW")
    if ast.get_docstring(tree) is None:
        found.append("has no module docstring")

    may_import = ROOMS_BELOW.get(room, set()) | {room}
    for line, module in private_flower(file, tree):
        found.append(f"line {line}: {module} is not public in Flower")
    for line, module in imports(file, tree):
        top, _, inside = module.partition(".")
        if top == PACKAGE:
            other = inside.partition(".")[0] or PUBLIC_NAMES
            if other not in may_import:
                found.append(f"line {line}: {room} may not import {other}")
        elif room in PURE_ROOMS and not allowed_in_pure_room(top):
            found.append(f"line {line}: {room} is pure and may not import {module}")
    if room in PURE_ROOMS:
        for line, call in file_calls(tree):
            found.append(f"line {line}: {room} is pure and may not call {call}")
    return list(dict.fromkeys(found))


def private_flower(file: PurePosixPath, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every module of Flower that is imported and is not public."""
    for line, module in imports(file, tree):
        if module.partition(".")[0] == "flwr" and module not in FLOWER_IN_PUBLIC:
            yield line, module


def allowed_in_pure_room(top: str) -> bool:
    return top in PURE_LIBRARIES or (top in sys.stdlib_module_names and top not in IMPURE_MODULES)


def imports(file: PurePosixPath, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module imported, anywhere in the file and in any form."""
    for node in nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names)
            case ast.ImportFrom(names=names):
                origin = absolute(file, node)
                for name in names:
                    if (origin, name.name) == (PACKAGE, "__version__"):
                        continue  # a constant, and whoever runs has loaded the package already
                    # `from noisemarket import game` imports a room, `... import Scenario` a name.
                    room = origin == PACKAGE and name.name in ROOMS_BELOW
                    yield node.lineno, f"{origin}.{name.name}" if room else origin
            case ast.Call(func=func, args=[ast.Constant(value=str(module)), *_]):
                if called(func).rpartition(".")[2] in {"import_module", "__import__"}:
                    yield node.lineno, module


def absolute(file: PurePosixPath, node: ast.ImportFrom) -> str:
    """The module that ``from ... import`` names, its leading dots resolved."""
    folders = (PACKAGE, *file.parent.parts)
    above = folders[: len(folders) - node.level + 1] if node.level else ()
    return ".".join([*above, *([node.module] if node.module else [])])


def file_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every call that reaches a file without an import that would tell."""
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            name = called(node.func)
            owner, _, function = name.rpartition(".")
            of_numpy = owner in {"np", "numpy"} and function in NUMPY_FILE_CALLS
            if function in {"open", "tofile", "write_text", "write_bytes"} or of_numpy:
                yield node.lineno, name


def called(func: ast.expr) -> str:
    """The dotted name that a call is written with; ``?`` for what is no plain name."""
    match func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{called(value)}.{attribute}"
        case _:
            return "?"


def test_there_are_sources_to_judge() -> None:
    rooms = {file.parts[0].removesuffix(".py") for file in FILES}
    assert {"errors", "game", "pricing"} <= rooms


def test_house_rules() -> None:
    found = {
        str(file): problems
        for file in FILES
        if (problems := complaints(file, (SOURCES / file).read_text(encoding="utf-8")))
    }
    assert found == {}


def test_examples_use_of_flower_what_is_public() -> None:
    files = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    assert files
    for file in files:
        if "peers" not in file.parts:  # these measure Flower's own simulation
            tree = ast.parse(file.read_text(encoding="utf-8"))
            assert list(private_flower(PurePosixPath(file.name), tree)) == [], file


def test_the_app_that_is_written_uses_of_flower_what_is_public(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower")
    from noisemarket.flower.host_files import write_app

    files = list(write_app(tmp_path / "app").rglob("*.py"))
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    assert len(trees) == 3
    assert not [seen for tree in trees for seen in private_flower(PurePosixPath("app.py"), tree)]


def test_the_version_is_the_same_everywhere() -> None:
    """``src/noisemarket/__init__.py`` says it; the build reads it there."""
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    said = (SOURCES / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', said, re.MULTILINE)
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == f"src/{PACKAGE}/__init__.py"
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    done = re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert done[:1] in ([], [version]), "the latest release of the changelog"


def test_every_extra_that_an_error_names_can_be_installed() -> None:
    named = {
        ast.literal_eval(node.args[1])
        for file in FILES
        for node in nodes(parsed((SOURCES / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and called(node.func) == "MissingExtra"
    }
    assert named <= set(PYPROJECT["project"]["optional-dependencies"])
    assert {"cnn", "dashboard", "flower", "postgres"} <= named


def tree_in(page: str) -> list[PurePosixPath]:
    """The paths that an indented tree under ``src/noisemarket/`` names, by its indentation."""
    (block,) = re.findall(rf"^ +src/{PACKAGE}/\n(?: +.*\n)+", page, re.MULTILINE)
    paths: list[PurePosixPath] = []
    above: list[tuple[int, PurePosixPath]] = []
    for line in block.splitlines():
        depth = len(line) - len(line.lstrip())
        above = [(other, path) for other, path in above if other < depth]
        folder = above[-1][1] if above else PurePosixPath()
        names = line.split()
        count = 1 if not names[-1].endswith("/") else len(names)  # `benchmarks/  docs/`: several
        paths += (found := [folder / name for name in names[:count]])
        above.append((depth, found[0]))
    return paths


def test_the_tree_in_the_documentation_is_the_one_on_disk() -> None:
    page = ROOT / "docs" / "explanation" / "architecture.md"
    assert page.relative_to(ROOT).as_posix() in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = tree_in(page.read_text(encoding="utf-8"))
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []
    rooms = {
        PurePosixPath("src", PACKAGE, room.name)
        for room in SOURCES.iterdir()
        if (room.is_dir() and any(room.glob("*.py"))) or room.suffix == ".py"
    }
    hidden = {PurePosixPath("src", PACKAGE, name) for name in ("__init__.py", "__main__.py")}
    assert rooms - hidden - set(paths) == set(), "rooms without a line"


def test_a_class_and_a_file_have_a_name_of_their_own() -> None:
    """``grep "class X"`` finds one place; a file of ``cli`` is named after its command."""
    homes: dict[str, list[str]] = {}
    for file in FILES:
        if file.name != "__init__.py" and file.parts[0] != "cli":
            homes.setdefault(file.name, []).append(str(file))
        for node in nodes(parsed((SOURCES / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(file))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_room_reaches_itself_through_the_rooms_below() -> None:
    """The table itself draws an order: no cycle hides in it."""
    for room in ROOMS_BELOW:
        seen, waiting = set(), set(ROOMS_BELOW[room])
        while waiting:
            seen.add(below := waiting.pop())
            waiting |= ROOMS_BELOW[below] - seen
        assert room not in seen


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("game/levels.py", "from noisemarket.errors import BadInput"),
        ("game/levels.py", "from . import surface"),
        ("game/levels.py", "from noisemarket import errors"),
        ("game/levels.py", "import math, functools\nimport scipy.optimize\nfrom numba import njit"),
        ("pricing/phc.py", "from ..game.levels import Levels"),
        ("pricing/rule.py", "import hashlib\nimport inspect"),
        ("pricing/dypp.py", "from noisemarket.pricing import rule"),
        ("scenario.py", "import pathlib\nimport pydantic\nfrom noisemarket.pricing import rule"),
        ("show/figures.py", "import matplotlib\nopen('x')"),
        ("market/run_folder.py", "from noisemarket import __version__"),
        ("cli/__init__.py", "from noisemarket import Scenario"),
        ("flower/wire.py", "from flwr.app import Message\nfrom flwr.clientapp.mod import a_mod"),
        ("flower/x.py", "from flwr.serverapp import Grid\nimport flwr.serverapp.strategy"),
    ],
)
def test_good_code_passes(file: str, code: str) -> None:
    assert complaints(PurePosixPath(file), f'"""Good."""\n{code}\n') == []


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        ("errors.py", "from noisemarket.game import levels", "errors may not import game"),
        ("game/levels.py", "import noisemarket.pricing.rules", "game may not import pricing"),
        ("game/levels.py", "from noisemarket import pricing", "game may not import pricing"),
        ("game/levels.py", "from noisemarket import Scenario", "game may not import __init__"),
        ("game/levels.py", "from ..pricing import rules", "game may not import pricing"),
        ("game/levels.py", "from .. import pricing", "game may not import pricing"),
        ("pricing/deep/a.py", "from ...scenario import b", "may not import scenario"),
        ("pricing/phc.py", "from noisemarket.scenario import x", "may not import scenario"),
        ("pricing/dypp.py", "from noisemarket.scenario import x, y", "may not import scenario"),
        ("scenario.py", "import noisemarket.market", "scenario may not import market"),
        ("show/x.py", "def f():\n    import noisemarket.cli", "show may not import cli"),
        ("__init__.py", "from noisemarket.cli import main", "__init__ may not import cli"),
        ("game/x.py", "if TYPE_CHECKING:\n    import noisemarket.cli", "may not import cli"),
        ("game/x.py", "importlib.import_module('noisemarket.cli')", "may not import cli"),
        ("attic/x.py", "", "'attic' has no line"),
        ("attic.py", "", "'attic' has no line"),
        ("game/x.py", "import torch", "pure and may not import torch"),
        ("game/x.py", "import pydantic", "pure and may not import pydantic"),
        ("game/x.py", "import os", "pure and may not import os"),
        ("game/x.py", "from pathlib import Path", "pure and may not import pathlib"),
        ("game/x.py", "def f():\n    from os import path", "pure and may not import os"),
        ("pricing/x.py", "from pathlib import Path", "pure and may not import pathlib"),
        ("pricing/x.py", "import time", "pure and may not import time"),
        ("pricing/deep/x.py", "import os", "pure and may not import os"),
        ("pricing/deep/x.py", "import datetime", "pure and may not import datetime"),
        ("pricing/x.py", "import random", "pure and may not import random"),
        ("pricing/x.py", "open('x')", "pure and may not call open"),
        ("pricing/deep/x.py", "Path('x').write_text('')", "may not call ?.write_text"),
        ("game/x.py", "np.savetxt('x', [])", "pure and may not call np.savetxt"),
        ("flower/x.py", "import flwr", "flwr is not public in Flower"),
        ("flower/x.py", "from flwr.common import log", "flwr.common is not public in Flower"),
        ("flower/x.py", "import flwr.serverapp.strategy.fedavg", "is not public in Flower"),
        ("cli/x.py", "def f():\n    from flwr.supercore import x", "is not public in Flower"),
    ],
)
def test_bad_code_is_caught(file: str, code: str, complaint: str) -> None:
    found = complaints(PurePosixPath(file), f'"""Bad."""\n{code}\n')
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize("code", ["", "# a comment\n", "x = 1\n"])
def test_missing_docstring_is_caught(code: str) -> None:
    assert complaints(PurePosixPath("game/x.py"), code) == ["has no module docstring"]
