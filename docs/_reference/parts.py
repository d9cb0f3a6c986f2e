"""Parts by name: what a scenario or an option can choose."""

from __future__ import annotations

import re
from collections.abc import Mapping

from _reference import code, page, table
from _reference.surfaces import surfaces
from noisemarket.federated.aggregation import WEIGHTINGS
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.rule import RULES

INTRO = """\
What can be chosen by name. [Extend noisemarket](../how-to/extend.md) says how to add a part of
your own."""


def parts_page() -> str:
    """A table for every kind of part."""
    mechanisms = [(code(name), part.knows, _about(part)) for name, part in MECHANISMS.items()]
    head = ("name", "must know", "what it does")
    parts = [INTRO, "## Mechanisms", table(head, mechanisms)]
    parts += ["## Learning rules", _learning_rules()]
    parts += _kind("Protections", PROTECTIONS)
    parts += _kind("Weightings", WEIGHTINGS)
    return page("Parts by name", *parts, *surfaces())


def _learning_rules() -> str:
    """The rules by name: what each does is said of the mechanism that plays it."""
    played = {getattr(part, "rule", ""): name for name, part in MECHANISMS.items()}
    rules = [
        code(name) + ("" if name in MECHANISMS else f" (mechanism {code(played[name])})")
        for name in RULES
    ]
    return f"Each is a mechanism above: {', '.join(rules)}."


def _kind(title: str, known: Mapping[str, object]) -> list[str]:
    rows = [(code(name), _about(part)) for name, part in known.items()]
    return [f"## {title}", table(("name", "what it does"), rows)]


def _about(part: object) -> str:
    rule = RULES.get(getattr(part, "rule", ""))
    text = (rule or part).__doc__ or type(part).__doc__ or ""
    first = " ".join(text.split()).partition(". ")[0].removesuffix(".")
    return re.sub(r"``([^`]+)``", r"`\1`", first)
