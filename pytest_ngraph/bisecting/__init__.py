"""Bisecting: which of many revisions or releases is the first that is slower, by verdicts with an error rate."""
