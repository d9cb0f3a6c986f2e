"""Plain values as TOML text: Python reads TOML and does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def toml_text(tree: Mapping[str, Any], path: str = "") -> str:
    """A tree of tables as TOML."""
    plain = {k: v for k, v in tree.items() if not _is_table(v)}
    lines = [f"{_key(key)} = {_literal(value)}" for key, value in plain.items()]
    for key, value in tree.items():
        if key in plain:
            continue
        full = f"{path}.{key}" if path else key
        for table in value if isinstance(value, list) else [value]:
            head = f"[[{full}]]" if isinstance(value, list) else f"[{full}]"
            lines += ["", head, toml_text(table, full).rstrip()]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    many = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return many or (isinstance(value, dict) and not _inline(value))


def _inline(value: Mapping[str, object]) -> bool:
    return "distribution" in value or not value or all(isinstance(v, float) for v in value.values())


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _literal(name)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_literal(v)}" for k, v in value.items()) + " }"
    return repr(value)
