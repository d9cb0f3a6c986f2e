"""What an owner lets go: made once, kept, charged to its account, and only then given."""

from __future__ import annotations

from collections.abc import Callable

from noisemarket.files import digest
from noisemarket.owner.folder import Arrays, Declined, OwnerFolder
from noisemarket.owner.terms import OwnerTerms
from noisemarket.privacy.accountant import BudgetSpent
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from noisemarket.privacy.statement import PrivacyBudget


def released(
    folder: OwnerFolder,
    terms: OwnerTerms,
    round_number: int,
    start: Arrays,
    make: Callable[[NoiseSource], Arrays],
    budget: Callable[[Arrays], PrivacyBudget],
) -> Arrays:
    """What goes out in a round from this global model: made once, kept, and charged.

    The same round from the same model once more gets the very same bits, whatever app asks. All
    else is made with new noise: none ever serves for two updates.

    Args:
        folder: the owner's.
        terms: what the owner agreed to.
        round_number: counted from 1.
        start: the global model.
        make: trains, and adds noise from the source that it is given.
        budget: what such a release costs.

    Raises:
        Declined: the owner's privacy budget is spent.
    """
    name = _named(start, b"%d" % round_number)
    release = folder.release(terms.job, name)
    if release is None:
        simulated = terms.noise == "simulated"
        release = make(SimulatedNoise(terms.seed) if simulated else SecureNoise())
        folder.keep_release(terms.job, name, release)
    charge(folder, terms, budget(release), round_number, release)
    return release


def charge(
    folder: OwnerFolder,
    terms: OwnerTerms,
    budget: PrivacyBudget,
    round_number: int,
    release: Arrays,
) -> None:
    """Pay for a release, on disk, before it goes out.

    Its name on the account is its content: the same bits once more cost nothing more, and no
    others pass for them.

    Raises:
        Declined: it would pass the cap.
    """
    journal = folder.journal(terms.job)
    journal.touch(mode=0o600)
    try:
        with JournalledAccountant(journal, [budget], terms.job) as accountant:
            accountant.charge(folder.name, round_number, release_id=_named(release))
    except BudgetSpent:
        raise Declined("the privacy budget is spent") from None


def _named(arrays: Arrays, *more: bytes) -> str:
    """What tells these arrays from any others."""
    parts = list(more)
    for name, array in arrays.items():
        parts += [f"{name}\0{array.dtype.str}\0{array.shape}".encode(), array.tobytes()]
    return digest(*parts).hex()
