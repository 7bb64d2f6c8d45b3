"""What ran inside a cell, node by node: a runtime's own profile, joined with the graph and with another cell's."""
