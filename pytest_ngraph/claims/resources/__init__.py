"""Claims about what a cell takes of a machine besides time."""
