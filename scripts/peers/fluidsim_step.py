"""fluidsim's ns3d (FFTW, MPI): Navier-Stokes RK4 from a Taylor-Green vortex, double precision."""

import contextlib
import os
import tempfile

from turns import Line, problem, serve, timed

line, settings = Line(), problem()
os.environ["FLUIDSIM_PATH"] = tempfile.mkdtemp()

import numpy as np  # noqa: E402
from fluiddyn.util import mpi  # noqa: E402
from fluidsim.solvers.ns3d.solver import Simul  # noqa: E402

n, steps = settings["n"], settings["steps"]
params = Simul.create_default_params()
params.short_name_type_run = "bench"
params.output.HAS_TO_SAVE = False
params.output.ONLINE_PLOT_OK = False
params.oper.nx = params.oper.ny = params.oper.nz = n
params.oper.Lx = params.oper.Ly = params.oper.Lz = 2 * np.pi
params.oper.type_fft = "fft3d.mpi_with_fftwmpi3d" if mpi.nb_proc > 1 else "fft3d.with_pyfftw"
params.oper.coef_dealiasing = 2 / 3
params.nu_2 = settings["viscosity"]
params.time_stepping.USE_CFL = False
params.time_stepping.deltat0 = settings["dt"]
params.time_stepping.type_time_scheme = "RK4"
params.init_fields.type = "in_script"
simulation = Simul(params)
X, Y, Z = simulation.oper.get_XYZ_loc()
simulation.state.init_statephys_from(
    vx=np.sin(X) * np.cos(Y) * np.cos(Z), vy=-np.cos(X) * np.sin(Y) * np.cos(Z), vz=0 * X
)
simulation.state.statespect_from_statephys()
simulation.state.statephys_from_statespect()


def run() -> None:
    for _ in range(steps):
        simulation.time_stepping.one_time_step_computation()


run()
energy = float(simulation.output.compute_energy())
barrier = mpi.comm.Barrier if mpi.nb_proc > 1 else contextlib.nullcontext
name = f"fluidsim ns3d ({params.oper.type_fft.split('.')[1]}), {mpi.nb_proc} ranks"
serve(
    line,
    {"name": name, "energy": energy},
    lambda: timed(steps, run, barrier),
    mpi.comm if mpi.nb_proc > 1 else None,
)
