"""The report as a page: what it holds, how its charts look, and one file that needs nothing else."""
