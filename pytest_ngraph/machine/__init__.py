"""The machine: facts, clock, GPUs, files, turns, processes left behind, and where its Python finds modules."""
