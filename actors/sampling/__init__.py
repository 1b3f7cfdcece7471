"""Traversals in lockstep: external, outcome and exact sampling."""
