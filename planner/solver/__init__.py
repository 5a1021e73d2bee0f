"""The one room for OR-tools: placement of one strategy, proved; and what conflicts when nothing is legal."""
