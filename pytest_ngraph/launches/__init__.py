"""One launch: fresh workers, visited in turn, from the process that starts them."""
