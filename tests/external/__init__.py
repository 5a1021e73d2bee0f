"""Tests against the parsers of other projects; ``make test-external`` sets them up."""
