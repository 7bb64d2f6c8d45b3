"""What runs on a device: the agent, and the process that measures."""
