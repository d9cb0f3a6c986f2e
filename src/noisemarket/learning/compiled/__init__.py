"""All rules for all pairs, compiled: one loop, vector operations, and the rules' inner steps."""
