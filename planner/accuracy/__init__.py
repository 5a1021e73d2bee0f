"""Predictions held against measured runs: reading, statistics, fit, calibration, reports."""
