"""The lab's certificates: made, read, checked and revoked."""
