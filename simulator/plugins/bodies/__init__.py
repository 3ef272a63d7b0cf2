"""Terms of an equation that the core does without: relaxation within masks (walls, bodies, sponges,
inflows) and to the data of files (nudging), and viscosities that depend on place, time and flow."""
