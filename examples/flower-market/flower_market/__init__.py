"""A Flower app that trains under contract."""
