"""Claims about what outputs are worth: accuracy, its drop against the dense model, and agreement with that."""
