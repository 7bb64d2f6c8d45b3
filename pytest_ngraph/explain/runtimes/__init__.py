"""Runtimes' own profiles of calls, one module each: for ``ngraph explain``, never while anything is timed."""
