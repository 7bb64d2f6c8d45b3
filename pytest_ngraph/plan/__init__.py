"""What must be measured: markers, grids, items, groups, and what they take."""
