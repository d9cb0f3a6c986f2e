"""Contracts, signatures, and the ledger that says what was agreed, delivered and paid.

``money`` counts in whole micro-units; ``contracts`` is the signed document and ``keys`` its
signatures; ``entries`` is one line of the ledger and ``history`` which lines may follow which;
``database`` and ``migrations`` are SQLite and PostgreSQL; ``store`` appends and asks,
``verification`` reads it all again and believes nothing; ``settlement`` pays, exactly once.
"""
