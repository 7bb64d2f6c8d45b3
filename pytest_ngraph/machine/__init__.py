"""The machine: facts, clock, GPUs, files, turns, and where its Python finds modules."""
