"""What a cell says of its times, held against clocks, new inputs and the machine."""
