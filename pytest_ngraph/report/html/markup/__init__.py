"""What the page says without a script: the answer, and tables that can be read as they stand in the file."""
