"""Optimizers: the contract, the catalogue, and what is done to networks before any compiler sees them."""
