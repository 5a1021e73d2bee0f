"""Clusters of several kinds of GPUs: each pipeline rank runs on one device group; which one is decided with the placement."""
