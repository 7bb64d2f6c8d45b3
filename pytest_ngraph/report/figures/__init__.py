"""Figures for papers: those of NGraphBench from a run, in the size that they have in print, each with its caption."""
