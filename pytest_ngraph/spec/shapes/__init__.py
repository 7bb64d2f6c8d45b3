"""What one build is for: one size, a range of them, or a mix in which calls of several sizes come in turn."""
