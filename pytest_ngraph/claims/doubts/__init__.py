"""What speaks against launches that gave numbers, and why there are no more of them."""
