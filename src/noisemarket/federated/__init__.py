"""Federated training: the images, who holds which of them, and the rounds over all owners."""
