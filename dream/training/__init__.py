"""The training loop, and the run that keeps what it makes."""
