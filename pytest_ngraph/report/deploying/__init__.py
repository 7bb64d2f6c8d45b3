"""What deployed models are asked: how time grows with length, and what becomes of latency as more calls arrive."""
