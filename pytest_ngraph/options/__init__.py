"""The options and the settings that they make."""
