"""The process that compiles and is timed."""
