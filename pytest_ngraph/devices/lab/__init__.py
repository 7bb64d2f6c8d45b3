"""The hub, and a run's way to its devices."""
