"""Many models on one pool of GPUs: who gets how many, and when."""
