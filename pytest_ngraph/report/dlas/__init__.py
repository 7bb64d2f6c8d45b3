"""The second paper, on the acceleration stack: its tables, its thirteen observations, and both of a run."""
