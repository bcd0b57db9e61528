"""A run in a terminal: findings, tables and bars that fit its width."""
