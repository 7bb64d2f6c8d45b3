"""Saved baselines: what a run measured, in a file that can live in git, for later runs to be held against."""
