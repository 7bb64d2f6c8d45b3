"""Compilers: the contract, the catalogue, and one adapter a file."""
