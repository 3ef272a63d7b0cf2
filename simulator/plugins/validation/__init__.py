"""Evidence for readers of results: the cases of `simulator validate`, which compare an installation
with exact solutions and published numbers, the set-up of a job (`doctor`), the time and memory of a
step, and the artifact description of runs. `pictures` draws the curves of the cases."""
