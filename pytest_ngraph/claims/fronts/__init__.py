"""Claims about fronts: that no other configuration is better than one."""
