"""What is kept: launches, cells and verdicts in one SQLite file, and tables made from them."""
