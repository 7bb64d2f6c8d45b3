"""From launches to numbers: measurements, sweeps, and what is computed over them."""
