"""Workloads that decode: a prompt, then token after token on a cache of keys and values."""
