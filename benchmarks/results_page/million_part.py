"""A million owners and 100 jobs a day, calculated from what was measured."""

from __future__ import annotations

from benchmarks.results_page.common import stored, table

OWNERS, JOBS, ROUNDS = 1_000_000, 100, 30
DAY = 86_400
WEIGHTS = 2000


def million_part() -> str | None:
    """Messages, bytes, writes and CPU of a day; then the largest round that was really made."""
    flower, ledger, engine = stored("flower-simulation"), stored("ledger"), stored("engine")
    if flower is None or ledger is None or engine is None or "pairs" not in engine:
        return None
    row = next(one for one in flower["rows"] if (one["owners"], one["rounds"]) == (100, ROUNDS))
    kinds = row["kinds"].values()
    messages, size = (sum(kind[what] for kind in kinds) / 100 for what in ("messages", "size"))
    entries, writes = row["ledger_entries"] / 100, ledger["SQLite"][-1]["entries_per_cpu_second"]
    many = {int(owners): spent for owners, spent in engine["many"].items()}
    largest = max(many)
    columns = []
    for each in (OWNERS // JOBS, OWNERS):
        uses = JOBS * each  # an owner in a job
        cpu = {
            "owners: training": uses * ROUNDS * many[largest] / largest,
            "Flower's runtime, owners' processes included": uses * row["cpu"] / 100,
            "curator: messages, tests, mean, signatures": uses * row["curator_cpu"] / 100,
            "curator: all pairs of a round's uploads": JOBS * ROUNDS * each * (each - 1) / 2
            * engine["pairs"]["seconds a pair"],
            "ledger: appending": uses * entries / writes,
        }  # fmt: skip
        columns.append(
            {
                "messages a day": f"{uses * messages / 1e6:,.0f} million",
                "bytes a day": f"{uses * size / 1e12:,.2f} TB",
                "on the wire, day and night": f"{8 * uses * size / DAY / 1e6:,.0f} Mbit/s",
                "ledger entries a day": f"{uses * entries / 1e6:,.0f} million",
                "ledger entries a second": f"{uses * entries / DAY:,.0f}",
                "uploads of one round in memory": f"{each * WEIGHTS * 4 / 1e9:,.2f} GB",
            }
            | {f"{name}, cores": f"{spent / DAY:,.1f}" for name, spent in cpu.items()}
        )
    heads = "", "10,000 owners a job, each once a day", "all owners in every job"
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    grown = ", ".join(f"{n:,} owners {spent:.1f}" for n, spent in sorted(many.items()))
    made = (
        f"Really made on two cores, a whole round by the embedded engine, CPU seconds: {grown} "
        f"({1000 * many[largest] / largest:.2f} ms an owner). `python -m benchmarks engine`, "
        "`flower` and `ledger` measure the constants."
    )
    return f"{table(heads, rows)}\n\n{made}"
