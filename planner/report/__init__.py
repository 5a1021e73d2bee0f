"""Answers as one HTML page that needs no network: tables, bars, curves, timelines, schedules."""
