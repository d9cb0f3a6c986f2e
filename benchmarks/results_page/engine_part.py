"""What a round, a start and the demo cost, for benchmarks/README.md."""

from __future__ import annotations

from benchmarks.results_page.common import Document, made_by, stored, table


def engine_table() -> str | None:
    """Every contestant's CPU milliseconds a round, over ours; then all else that was measured."""
    found = stored("engine")
    if found is None:
        return None
    ours = found["rounds"]["noisemarket, training only"]
    rows = [
        [name, f"{1000 * spent:.1f}", f"{spent / ours:.2f}"]
        for name, spent in found["rounds"].items()
    ]
    rounds = table(["a round of 100 owners x 600 records", "CPU ms", "over our training"], rows)
    others = table(["what", "takes"], [*_sizes(found), *_starts(found), *_demo(found)])
    measured = f"Measured by {made_by(found)} on {found['date']} ({found['machine']})."
    return "\n\n".join([rounds, others, *_clipping(found), measured])


def _sizes(found: Document) -> list[list[str]]:
    return [
        [f"a whole round, {int(owners):,} owners x 600, two workers", f"{spent:.2f} CPU s"]
        for owners, spent in found["many"].items()
    ]


def _starts(found: Document) -> list[list[str]]:
    return [[f"`{name}`", f"{spent:.2f} user s"] for name, spent in found.get("starts", {}).items()]


def _demo(found: Document) -> list[list[str]]:
    if (demo := found.get("demo")) is None:
        return []
    took = f"{demo['CPU seconds']:.0f} CPU s, {demo['peak GB']:.2f} GB"
    return [["the demo, `noisemarket run`", took]]


def _clipping(found: Document) -> list[str]:
    steps = found.get("clipping")
    if not isinstance(steps, dict):
        return []
    rows = [[name, f"{1000 * spent:.1f}"] for name, spent in steps.items()]
    return [table(["64 records of the CNN, each clipped, and noise", "CPU ms"], rows)]
