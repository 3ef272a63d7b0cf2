"""fluidsim's ns3d or ns2d (FFTW, MPI): Navier-Stokes from a Taylor-Green vortex, double precision,
RK4 with a fixed dt; or, for `stop`, any of its schemes with its largest dt from the perturbed
vortex, measured at that time."""

import contextlib
import importlib
import os
import random
import tempfile

import perturbed_vortex
from turns import Line, problem, serve, timed

line = Line()
settings = problem()
os.environ["FLUIDSIM_PATH"] = tempfile.mkdtemp()

import numpy as np  # noqa: E402
from fluiddyn.util import mpi  # noqa: E402

shape = settings["shape"]
steps = settings["steps"]
solver = f"ns{len(shape)}d"
Simul = importlib.import_module(f"fluidsim.solvers.{solver}.solver").Simul
params = Simul.create_default_params()
params.short_name_type_run = "bench"
params.output.HAS_TO_SAVE = False
params.output.ONLINE_PLOT_OK = False
for axis, n in zip("xyz", shape, strict=False):
    setattr(params.oper, f"n{axis}", n)
    setattr(params.oper, f"L{axis}", 2 * np.pi)
kind = f"mpi_with_{settings['transform']}" if mpi.nb_proc > 1 else "with_pyfftw"
params.oper.type_fft = f"fft{len(shape)}d.{kind}"
params.oper.coef_dealiasing = 2 / 3
stop = settings.get("stop")
scheme = settings.get("scheme", "RK4")
if "phaseshift" in scheme:
    params.oper.truncation_shape = "spherical"
    # Without the modes on the sphere itself, which have two aliases.
    params.oper.coef_dealiasing = (1 - 1e-12) * 2 * np.sqrt(2) / 3
    # Each rank draws the shifts of RK4 from its own generator, but the grid of all is one: two ranks
    # that draw different shifts miss the dissipation by 2 % (fluidsim 26.10).
    random.seed(0)
params.nu_2 = settings["viscosity"]
params.time_stepping.USE_CFL = stop is not None  # with the scheme's own coefficient
params.time_stepping.deltat0 = settings["dt"]
params.time_stepping.type_time_scheme = scheme
params.init_fields.type = "in_script"
simulation = Simul(params)
if len(shape) == 3:
    X, Y, Z = simulation.oper.get_XYZ_loc()
    vx = np.sin(X) * np.cos(Y) * np.cos(Z)
    vy = -np.cos(X) * np.sin(Y) * np.cos(Z)
    vz = 0 * X
    if stop is not None:
        vx, vy, vz = perturbed_vortex.start(X, Y, Z)
    simulation.state.init_statephys_from(vx=vx, vy=vy, vz=vz)
    simulation.state.statespect_from_statephys()
    simulation.state.statephys_from_statespect()
else:
    X = simulation.oper.XX
    Y = simulation.oper.YY
    simulation.state.init_from_rotfft(simulation.oper.fft(2 * np.sin(X) * np.sin(Y)))


stepping = simulation.time_stepping


def step(largest: float = np.inf) -> None:
    if stop is not None:
        stepping.compute_time_increment_CLF()
        stepping.deltat = min(stepping.deltat, largest)
    stepping.one_time_step_computation()
    stepping.t += stepping.deltat


def run() -> None:
    for _ in range(steps):
        step()


barrier = mpi.comm.Barrier if mpi.nb_proc > 1 else contextlib.nullcontext
name = f"fluidsim {solver} ({params.oper.type_fft.split('.')[1]}), {mpi.nb_proc} ranks"
if stop is None:
    run()
    report = {"name": name, "energy": float(simulation.output.compute_energy())}
else:
    taken = 0
    while stop - stepping.t > 1e-9 * stop:
        step(stop - stepping.t)
        taken += 1
    gather = simulation.oper.gather_Xspace
    velocity = [gather(simulation.state.get_var(f"v{axis}")) for axis in "xyz"]
    report = {"name": f"fluidsim, {scheme}, {shape[0]}^3", "steps": taken}
    if mpi.rank == 0:
        report |= perturbed_vortex.read(np.stack(velocity), settings["viscosity"])
serve(line, report, lambda: timed(steps, run, barrier), mpi.comm if mpi.nb_proc > 1 else None)
