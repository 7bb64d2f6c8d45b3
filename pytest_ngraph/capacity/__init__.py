"""Capacity: claims about how many calls a second can arrive before a percentile of the latency is beyond its bound."""
