"""Self-gravitating gas, and waves: the Schrodinger-Poisson equations. Each is a model, and a component
of a composite."""
