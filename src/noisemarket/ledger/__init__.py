"""Contracts, signatures, the ledger that records them, and payment exactly once."""
