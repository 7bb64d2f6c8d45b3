"""Tables and files for other tools."""
