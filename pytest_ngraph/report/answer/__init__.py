"""What a run comes to, before its details: what holds, what is faster, what could not run, and what pays."""
