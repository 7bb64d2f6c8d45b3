"""Texts for people: cleaned, shortened and escaped."""
