"""Saved baselines as runs meet them: cells are held against them, and put into them."""
