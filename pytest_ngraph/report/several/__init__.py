"""Several runs on one page, side by side, with what differs between them on top."""
