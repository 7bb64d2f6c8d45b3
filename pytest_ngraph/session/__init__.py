"""The store first, then measure: what runs launches for tests."""
