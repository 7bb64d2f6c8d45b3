"""What is sent between a run and a device."""
