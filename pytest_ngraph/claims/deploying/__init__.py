"""Claims about networks as they are deployed: over the lengths of their sequences, and token by token."""
