"""Federated training: records and their owners, and the rounds over all owners."""
