"""The adapter of Apache TVM, and its search."""
