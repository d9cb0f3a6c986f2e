"""Errors that a user can cause: their messages are sentences, printed without a traceback."""

from __future__ import annotations

_VERBS = {
    *("is", "are", "was", "has", "lacks", "needs", "exists", "gives", "holds", "differs"),
    *("belongs", "protects", "cannot", "must", "do", "does"),
}
"""Verbs with which a remedy says what is wrong with the value."""


class NoisemarketError(Exception):
    """Root of all errors that this package raises on purpose; ``again``: a retry may succeed.

    Example:
        >>> import noisemarket as nm
        >>> try:
        ...     nm.Scenario.from_preset("bazaar")
        ... except NoisemarketError as problem:
        ...     print(type(problem).__name__)
        BadInput
    """

    again = False


class BadInput(NoisemarketError):
    """A value that cannot be used, said in one sentence: which field, which value, what to do.

    ``remedy`` says what to do ("give ..."), or what is wrong with the value ("is ...", "has ...").

    Example:
        >>> print(BadInput("owners", 0, "give at least one owner."))
        owners is 0: give at least one owner.
        >>> print(BadInput("data", "images", "does not exist: name a folder."))
        data images does not exist: name a folder.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        says = remedy.partition(" ")[0] in _VERBS
        said = (
            f"{field} {_shown(value)} {remedy}" if says else f"{field} is {_shown(value)}: {remedy}"
        )
        super().__init__(printable(said))


class MissingExtra(NoisemarketError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs an extra: pip install 'noisemarket[{extra}]'.")


class Interrupted(NoisemarketError):
    """The user stopped a run; finished work has been kept."""


class LedgerError(NoisemarketError):
    """The ledger cannot be reached, read or written."""


class BadSignature(LedgerError):
    """A contract or a receipt is not signed by the right key."""


class LedgerLost(LedgerError):
    """The ledger lacks a head that was noted elsewhere: it was lost or restored from a backup."""


class LedgerConflict(LedgerError):
    """An entry contradicts what the ledger holds already; nothing was written."""


class OverBudget(LedgerConflict):
    """A contract or a payment would pass the job's budget; nothing was written."""


class LedgerBroken(LedgerError):
    """Verification failed. ``seq`` is the first bad entry; None where no single one is to blame."""

    def __init__(self, seq: int | None, reason: str) -> None:
        self.seq = seq
        self.reason = reason
        subject = "the ledger" if seq is None else f"entry {seq}"
        super().__init__(f"verification failed: {subject} {reason}")


class NoLedger(BadInput):
    """There is no ledger where one was named. The value has no password in it."""


def printable(text: str) -> str:
    """A text with what cannot be printed, such as a terminal's commands, written as escapes."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:48]}...{text[-69:]}"  # a path's end says most
