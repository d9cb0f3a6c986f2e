"""Benchmarks and studies: ``python -m benchmarks`` lists them (README.md)."""
