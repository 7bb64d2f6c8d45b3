"""The machine: facts, clock, GPUs, and how its Python is started."""
