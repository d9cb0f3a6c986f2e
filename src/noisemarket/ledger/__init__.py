"""Contracts, signatures, and the ledger that says what was agreed, delivered and paid.

``money`` counts in whole micro-units; ``contract`` is the signed document and ``keys`` its
signatures; ``entries`` is what a ledger records and ``history`` which entries may follow which.
``store`` is the ledger, ``backend`` where one is kept, ``sql_backend`` with ``migrations`` SQLite
and PostgreSQL. ``queries`` reads a ledger, ``verification`` checks all of it, and ``settlement``
pays, exactly once.
"""
