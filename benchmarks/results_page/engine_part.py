"""What a round of the default model costs, for benchmarks/README.md."""

from __future__ import annotations

from benchmarks.results_page.common import made_by, stored, table


def engine_table() -> str | None:
    """Every contestant's CPU milliseconds a round, over ours; then many owners."""
    found = stored("engine")
    if found is None:
        return None
    ours = found["rounds"]["noisemarket, training only"]
    rows = [
        [name, f"{1000 * spent:.1f}", f"{spent / ours:.2f}"]
        for name, spent in found["rounds"].items()
    ]
    sizes = [f"{int(owners):,} owners {spent:.2f}" for owners, spent in found["many"].items()]
    text = table(["a round of 100 owners x 600 records", "CPU ms", "over our training"], rows)
    grown = f"CPU seconds of a whole round with two workers: {', '.join(sizes)}."
    return f"{text}\n\n{grown}\n{made_by(found)}"
