"""From bounds to verdicts: the assertion helpers, and what decides them."""
