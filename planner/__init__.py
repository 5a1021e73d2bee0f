"""Which plan to choose."""
