"""How noisy a machine is, by itself and in a run."""
