"""Untimed passes: what a cell is worth beside its times, once for each cell and not in each launch."""
