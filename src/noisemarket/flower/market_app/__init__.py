"""A market on Flower."""
