"""Certificates that renew themselves."""
