"""Contracts, signatures, and the ledger that says what was agreed, delivered and paid.

``money`` counts in whole micro-units; ``contract`` is the signed document and ``keys`` its
signatures; ``entries`` is what a ledger records and ``history`` which entries may follow which.
``store`` is the ledger and ``database`` its tables in SQLite or PostgreSQL. ``queries`` reads a
ledger, ``verification`` checks all of it, ``settlement`` pays, exactly once, and ``receipts`` are
an owner's proof.
"""
