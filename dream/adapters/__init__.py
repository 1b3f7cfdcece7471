"""Trained strategies in the interfaces of other libraries."""
