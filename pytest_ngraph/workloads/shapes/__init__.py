"""Builds that are for more than one shape: where they are tried beside what is measured, and which axes are open."""
