"""Devices: where a launch runs, and the lock that keeps measuring serial."""
