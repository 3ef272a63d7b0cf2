"""Pictures of runs and studies, drawn from the files in their folders without JAX and without a
display: plots (`runs`, `study`, and `kinds` for each kind of series), movies, reports as HTML pages;
and volume pictures, which the devices render from snapshots or in the run (`output.render`).

It adds the commands `plot`, `movie`, `render` and `report`, which also serves `sweep plot`, and the
series `render`. Packages add pictures of what they store by entry points of `simulator.pictures`
(see `series_pictures`)."""
