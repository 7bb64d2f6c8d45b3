"""What ran in the cells of a run, node by node, as far as it was explained."""
