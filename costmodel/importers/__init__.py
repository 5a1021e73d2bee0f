"""Readers of logs and traces that users already have; each returns a source and measured entries."""
