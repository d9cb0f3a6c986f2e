"""The economics of the market: pure functions, no files, no clock, no randomness of its own."""
