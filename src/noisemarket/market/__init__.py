"""The market: negotiate, sign, train under contract, verify and pay. Start at ``job.py``."""
