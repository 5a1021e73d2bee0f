"""What a plan costs: time and memory; knows nothing of search, torch or the command line."""
