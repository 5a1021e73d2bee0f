"""Exact search over operator cuts, degrees and recomputation under the cost definition of Aceso (EuroSys'24)."""
