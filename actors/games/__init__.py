"""Batched two-player zero-sum games over OpenSpiel: enumerated trees and lockstep simulators."""
