"""Choosing: which configurations no other one is shown to be better than, and which of them to deploy."""
