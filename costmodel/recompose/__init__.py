"""Pipeline plans that were really run, recomposed from operator tables and held against their measurement."""
