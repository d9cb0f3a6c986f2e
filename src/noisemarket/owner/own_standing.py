"""Whether an owner's uploads helped, by the owner's own account.

An owner keeps what it has sent, and with it the digest of the directions that its curator named
before. The directions themselves come when the job is settled: who knew them sooner could send
along them what it never learned. From both the owner computes where it stands, and compares.

    uploads/round-0001.npz      what was sent, by whom, and the digest of the round's directions
    reference/round-0001.npz    these directions
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.protections import Upload
from noisemarket.federated.reference import directions_digest
from noisemarket.files import load_arrays, private_folder, save_arrays
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.privacy.usefulness_rule import LEAST_SIGMA, UsefulStanding, standings

UPLOADS, REFERENCE = "uploads", "reference"
"""The folders of what was sent, and of the directions, in the folder of a job."""

_DIRECTIONS = "directions"


class SentUpload(NamedTuple):
    """What an owner sent in a round, and the digest that it had of the round's directions."""

    upload: Upload
    reference: str


def round_file(folder: Path, number: int) -> Path:
    """The file of a round, counted from 1."""
    return folder / f"round-{number:04d}.npz"


def keep_uploads(folder: Path, number: int, uploads: dict[str, Upload], reference: str) -> None:
    """Keep what some owners send in a round, by name, for their eyes only."""
    private_folder(folder)
    names = np.array(list(uploads), dtype=np.str_)
    rows = np.stack(list(uploads.values())) if uploads else np.zeros((0, 0), np.float32)
    save_arrays(
        round_file(folder, number), private=True, owners=names, uploads=rows,
        reference=np.array(reference),
    )  # fmt: skip


def sent_in(folder: Path, number: int, owner: str) -> SentUpload | None:
    """What an owner has kept of a round; None if it sent nothing."""
    path = round_file(folder, number)
    if not path.exists():
        return None
    kept = _read(path, "uploads")
    try:
        names = [str(name) for name in kept["owners"]]
        if owner not in names:
            return None
        return SentUpload(kept["uploads"][names.index(owner)], str(kept["reference"]))
    except (KeyError, IndexError, TypeError):
        raise BadInput("uploads", str(path), "is not a file of uploads: put it back.") from None


def keep_directions(folder: Path, number: int, rows: NDArray[np.float32]) -> None:
    """Keep the directions of a round."""
    folder.mkdir(mode=0o700, exist_ok=True)
    save_arrays(round_file(folder, number), directions=rows)


def keep_shown(owner: OwnerFolder, job: str, number: int, rows: NDArray[np.float32]) -> None:
    """Keep the directions of a round that a curator shows, in the owner's own folder.

    Raises:
        Declined: they are not those whose digest the owner had before its upload.
    """
    with owner.locked(job) as path:
        sent = sent_in(path / UPLOADS, number, owner.name)
        if sent is None or directions_digest(rows) != sent.reference:
            raise Declined("these are not the directions that were named before the upload")
        keep_directions(path / REFERENCE, number, rows)


def directions_in(folder: Path, number: int) -> NDArray[np.float32] | None:
    """The directions of a round that are kept; None if there are none."""
    path = round_file(folder, number)
    if not path.exists():
        return None
    rows = _read(path, _DIRECTIONS).get("directions")
    if rows is None or rows.ndim != 2 or rows.dtype != np.float32 or not np.isfinite(rows).all():
        raise BadInput(_DIRECTIONS, str(path), "is not a file of directions: put it back.")
    return rows


def own_standing(
    uploads: Path, reference: Path, owner: str, sigma: float, rounds: Collection[int]
) -> UsefulStanding:
    """Where an owner stands, from what it sent and the directions of these rounds.

    It is the same as by the curator's account, up to rounding, if both are honest.

    Raises:
        BadInput: something of a round is missing, or its directions are not those whose digest the
            owner had before it sent its upload.
    """
    along, gram = np.zeros(1), np.zeros((1, 1))
    for number in sorted(rounds):
        sent, rows = sent_in(uploads, number, owner), directions_in(reference, number)
        if sent is None:
            raise BadInput("uploads", str(uploads), f"has none of {owner} in round {number}.")
        if rows is None:
            remedy = f"has none of round {number}: they come when the job is settled."
            raise BadInput(_DIRECTIONS, str(reference), remedy)
        if directions_digest(rows) != sent.reference or rows.shape[1] != sent.upload.size:
            remedy = "are not those that the curator named before the upload: ask it why."
            raise BadInput(_DIRECTIONS, f"round {number}", remedy)
        precise = rows.astype(np.float64)
        along = along + precise @ sent.upload.astype(np.float64) / max(sigma, LEAST_SIGMA)
        gram = gram + precise @ precise.T
    if not rounds:
        return UsefulStanding(0, 0.0, 0.0)
    best, against = standings(along[None], gram[None])
    return UsefulStanding(len(rounds), float(best[0]), float(against[0]))


def rounds_sent(uploads: Path) -> Iterator[int]:
    """The rounds in which something was sent."""
    for path in sorted(uploads.glob("round-*.npz")):
        if (number := path.stem.removeprefix("round-")).isdecimal():
            yield int(number)


def _read(path: Path, field: str) -> dict[str, NDArray[Any]]:
    try:
        return load_arrays(path)
    except (OSError, ValueError) as problem:
        raise BadInput(field, str(path), f"cannot be read ({problem}).") from None
