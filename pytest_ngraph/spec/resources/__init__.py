"""What a cell takes of a machine besides time, as records keep it."""
