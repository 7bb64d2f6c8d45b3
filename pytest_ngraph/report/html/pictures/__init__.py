"""What the charts are drawn of: their axes, and each kind of chart."""
