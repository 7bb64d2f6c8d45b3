"""Models that a user might write, as factories for the tests of the workloads room."""
