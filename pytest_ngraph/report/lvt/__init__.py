"""The third paper's table and figures of a run: six metrics of a latency-focused and a throughput-focused setup."""
