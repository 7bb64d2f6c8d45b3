"""Probes: where energy and load are read from, one source a file, each with what it covers."""
