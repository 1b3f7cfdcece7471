"""Compiled loops over flat arrays. What changes during a run lives in the caller's arrays; nothing is global."""
