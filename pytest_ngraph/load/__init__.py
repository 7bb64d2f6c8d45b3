"""Load: scenarios in which calls arrive by themselves, the queue that they make, and what is said of it."""
