"""What was measured, as reports need it."""
