"""What the charts are drawn by: the ends of their axes, and colours, shapes and dashes."""
