"""Measuring from a script or a notebook: what a pytest run does, without pytest."""
