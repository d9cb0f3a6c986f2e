"""The once keys of entries, written out: writer and verifier take them from one function."""

from tests.ledger.common import contract, key, sign

from noisemarket.ledger import entries
from noisemarket.ledger.entries import FIELDS, Head, seal_entry


def test_the_once_key_of_every_kind() -> None:
    one, curator = contract(), key("curator")
    made = {
        "opened": entries.opened("job-1", 1, curator.public_hex),
        f"offered:{one.id}": entries.offered(one),
        f"signed:{one.id}": entries.signed(sign(one)),
        "begun:2": entries.begun("job-1", 2, 1),
        f"round:{one.id}:1": entries.delivered(one, 1),
        f"round:{one.id}:2": entries.missed(one, 2, "no upload"),
        f"round:{one.id}:3": entries.refused(one, 3, "not finite"),
        f"verified:{one.id}": entries.verified(one, True, 1),
        "settled": entries.settled("job-1", 0, 0, 0),
        None: seal_entry(curator, Head(0, entries.FIRST), "job-1", "2030-01-01T00:00:00+00:00"),
    }
    assert {entry.once: entry.kind for entry in made.values()} == {
        once: entry.kind for once, entry in made.items()
    }
    closed = [entries.paid(one, 3), entries.broken(one)]
    assert [entry.once for entry in closed] == 2 * [f"closed:{one.id}"]
    assert {entry.kind for entry in (*made.values(), *closed)} == set(FIELDS)
