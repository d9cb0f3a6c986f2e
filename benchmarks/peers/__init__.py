"""The same training by other means, each a process of its own: see ``benchmarks/federated.py``."""
