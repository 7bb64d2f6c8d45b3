"""What a pull request shows of a run: a comment or a job's summary, and annotations."""
