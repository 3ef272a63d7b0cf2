"""fluidsim's ns3d or ns2d (FFTW, MPI): Navier-Stokes RK4 from a Taylor-Green vortex, double
precision."""

import contextlib
import importlib
import os
import tempfile

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
params.nu_2 = settings["viscosity"]
params.time_stepping.USE_CFL = False
params.time_stepping.deltat0 = settings["dt"]
params.time_stepping.type_time_scheme = "RK4"
params.init_fields.type = "in_script"
simulation = Simul(params)
if len(shape) == 3:
    X, Y, Z = simulation.oper.get_XYZ_loc()
    vx = np.sin(X) * np.cos(Y) * np.cos(Z)
    vy = -np.cos(X) * np.sin(Y) * np.cos(Z)
    simulation.state.init_statephys_from(vx=vx, vy=vy, vz=0 * X)
    simulation.state.statespect_from_statephys()
    simulation.state.statephys_from_statespect()
else:
    X = simulation.oper.XX
    Y = simulation.oper.YY
    simulation.state.init_from_rotfft(simulation.oper.fft(2 * np.sin(X) * np.sin(Y)))


def run() -> None:
    for _ in range(steps):
        simulation.time_stepping.one_time_step_computation()


run()
energy = float(simulation.output.compute_energy())
barrier = mpi.comm.Barrier if mpi.nb_proc > 1 else contextlib.nullcontext
name = f"fluidsim {solver} ({params.oper.type_fft.split('.')[1]}), {mpi.nb_proc} ranks"
serve(
    line,
    {"name": name, "energy": energy},
    lambda: timed(steps, run, barrier),
    mpi.comm if mpi.nb_proc > 1 else None,
)
