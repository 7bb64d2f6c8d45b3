"""The paper's tables and findings, and a run beside them."""
