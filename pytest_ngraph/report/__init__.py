"""What the user sees: header, progress, summary tables, and tidy rows for exports."""
