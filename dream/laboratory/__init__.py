"""The laboratory: tabular solvers on enumerated games, compiled; the ground truth beside the deep methods."""
