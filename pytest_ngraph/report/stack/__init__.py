"""A run by the layers of the acceleration stack: what was done to a network, what computes it, and their names."""
