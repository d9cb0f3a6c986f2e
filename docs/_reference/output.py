"""Files that commands leave, and what their keys and columns mean: from ``_fields.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

from _reference import code, items, page

SOURCE = Path(__file__).resolve().parent.parent / "_fields.toml"
FILES = SOURCE.with_name("_files.txt")


def output_page() -> str:
    """The files, then a list for every document."""
    parts = [FILES.read_text(encoding="utf-8")]
    for part in tomllib.loads(SOURCE.read_text(encoding="utf-8"))["part"]:
        named = {name for key in part["fields"] for name in key.split(", ")}
        for covered in part.get("covers", ()):
            if missing := [name for name in _names(covered) if name not in named]:
                raise ValueError(
                    f"_fields.toml, {part['title']}: say what {missing} of {covered} mean"
                )
        rows = [
            (", ".join(map(code, key.split(", "))), text) for key, text in part["fields"].items()
        ]
        parts += [f"## {part['title']}", part.get("text", ""), items(rows)]
    return page("Files, JSON and CSV", *parts)


def _names(path: str) -> Iterable[str]:
    module, _, name = path.partition(":")
    found = getattr(import_module(module), name)
    if isinstance(found, type) and issubclass(found, BaseModel):
        return found.model_fields
    return [field.name for field in fields(found)] if is_dataclass(found) else found
