"""Fronts of what is stored: which configurations of a run no other one is shown to be better than."""
