"""Pictures of plugins, drawn with `simulator.plugins.pictures`."""
