"""How the two sides learn to trade without knowing each other.

A file per rule and its variants, written plainly in NumPy for one player: these files are the
specification. ``compiled/`` plays the same rules for all pairs at once and gives the same
trajectories.
"""
