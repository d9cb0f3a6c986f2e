"""docs/explanation/results.md and its figures, part by part, from benchmarks/results."""
