"""Where a pull request gets what a run says: files, GitHub's step summary, annotations."""
