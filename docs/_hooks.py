"""What the build of the site does beyond MkDocs: pages and files from outside ``docs/``.

README, CONTRIBUTING, SECURITY, CHANGELOG and the examples stay where a visitor of the repository
looks for them. The site shows the same files, with the links between them and ``docs/`` rewritten.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from griffe import Extension
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parent))

import _generate

ROOT = Path(__file__).resolve().parent.parent
HOME = "README.md"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
           "benchmarks/README.md", "deploy/README.md")  # fmt: skip
EXAMPLES = ("*.md", "*.toml", "*.csv", "*.py", "*.ipynb")
FIGURES = "benchmarks/results/reproduction/*.png"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//"
    r"|(?:url\(|@import )[\"']?(?:https?:)?//"
)
"""Something that a browser would fetch from another host."""


class Examples(Extension):
    """Reads ``Example:`` of a docstring as code, as ``Examples:`` is; else it would be prose."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if text := obj.docstring:
            text.value = re.sub(r"^Example:$", "Examples:", text.value, flags=re.M)


def on_pre_build(**_: Any) -> None:
    """Write the generated pages of the reference."""
    _generate.main()


def on_files(files: Files, config: Any) -> Files:
    """Add what the site shows from outside ``docs/``."""
    shown = [ROOT / name for name in OUTSIDE]
    shown += [path for kind in EXAMPLES for path in sorted(ROOT.glob(f"examples/**/{kind}"))]
    shown += sorted(ROOT.glob(FIGURES))
    for path in shown:
        here = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, site_path(here), abs_src_path=str(path)))
    return files


def on_post_build(config: Any) -> None:
    """Refuse a site that loads anything from another host."""
    for file in Path(config.site_dir).rglob("*"):
        if file.suffix in (".html", ".css") and LOADED.search(file.read_text(encoding="utf-8")):
            raise PluginError(f"{file} loads something from another host; keep a copy in docs/.")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links that lead into ``docs/`` or out of it."""
    inside = not page.file.generated_by
    source = f"docs/{page.file.src_uri}" if inside else repository_path(page.file.src_uri)
    return relink(markdown, source)


def relink(markdown: str, source: str) -> str:
    """The links of a page of the repository, as they are on the site."""
    folder, own = posixpath.dirname(source), posixpath.dirname(site_path(source))

    def rewritten(found: re.Match[str]) -> str:
        file, mark, anchor = found[2].partition("#")
        if not file or re.match(r"[a-z]+:", file):
            return found[0]
        target = site_path(posixpath.normpath(posixpath.join(folder, file)))
        return f"{found[1]}{posixpath.relpath(target, own or '.')}{mark}{anchor}{found[3]}"

    return LINK.sub(rewritten, markdown)


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    return "index.md" if path == HOME else path.removeprefix("docs/")


def repository_path(path: str) -> str:
    """Where a page of the site that is not in ``docs/`` is in the repository."""
    return HOME if path == "index.md" else path
