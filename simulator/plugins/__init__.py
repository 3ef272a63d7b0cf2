"""Parts of the program that can be taken off. Each folder is a whole, with settings, computation,
files, pictures and commands; it enters by the entry points that `pyproject.toml` declares for it,
like the package of a stranger (see `simulator.registry`), and can be deleted. Nothing outside of
this folder imports from it."""
