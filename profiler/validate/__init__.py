"""A strategy launched for real with PyTorch's own parts, and its prediction held against it."""
