"""What is measured of equations: one file for each kind of physics."""
