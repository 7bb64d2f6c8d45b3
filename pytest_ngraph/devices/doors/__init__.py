"""Who may connect, and what may be said there."""
