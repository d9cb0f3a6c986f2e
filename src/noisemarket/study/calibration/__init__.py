"""Measuring how noise and non-IID data turn into accuracy, and fitting the game's loss surface."""
