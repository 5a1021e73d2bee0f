"""How long things take on this machine."""
