"""Pictures of the series of this plugin."""
