"""What a pytest user meets."""
