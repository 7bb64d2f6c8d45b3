"""Transformers by name, built from a table of sizes with seeded weights, and from folders with their own weights."""
