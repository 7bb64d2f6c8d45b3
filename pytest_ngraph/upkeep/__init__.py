"""The care of a store and its caches."""
