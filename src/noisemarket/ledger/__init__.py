"""Contracts, signatures, and the ledger that records them and each payment exactly once."""
