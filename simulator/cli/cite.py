"""`simulator cite`: how to cite the program and the methods of a run."""

import argparse
from pathlib import Path
from typing import Any

from simulator.cli.parser import program_version


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "cite",
        help="print BibTeX entries for the program and the methods of a run",
        description="Print BibTeX entries: of the program, and with CONFIG or RUN of the methods that it uses.",
        epilog="example: simulator cite configs/taylor_green.yaml",
    )
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="a run's YAML file, or a run's folder")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the entries."""
    entries = [_program()]
    if args.config is not None:
        from simulator.config import load_config

        path = Path(args.config)
        config = load_config(path / "config.yaml" if path.is_dir() else path, check_files=False)
        used = [config.model.kind, config.time.integrator, config.initial.kind]
        used += [config.forcing.kind] if config.forcing is not None else []
        used += [config.grid.dealias]
        entries += [METHODS[name] for name in dict.fromkeys(used) if name in METHODS]
    print("\n\n".join(entries))
    return 0


def _program() -> str:
    return (
        "@software{simulator,\n"
        "  title = {simulator: distributed pseudo-spectral simulations of fluids and self-gravitating matter},\n"
        f"  version = {{{program_version()}}}\n"
        "}"
    )


METHODS = {
    "etdrk4": """@article{CoxMatthews2002,
  author = {Cox, S. M. and Matthews, P. C.},
  title = {Exponential Time Differencing for Stiff Systems},
  journal = {Journal of Computational Physics}, volume = {176}, pages = {430--455}, year = {2002},
  doi = {10.1006/jcph.2002.6995}
}""",
    "rk3": """@article{Williamson1980,
  author = {Williamson, J. H.},
  title = {Low-storage {Runge--Kutta} schemes},
  journal = {Journal of Computational Physics}, volume = {35}, pages = {48--56}, year = {1980},
  doi = {10.1016/0021-9991(80)90033-9}
}""",
    "spherical": """@techreport{Rogallo1981,
  author = {Rogallo, R. S.},
  title = {Numerical experiments in homogeneous turbulence},
  institution = {NASA}, number = {TM 81315}, year = {1981}
}""",
    "two_thirds": """@article{Orszag1971,
  author = {Orszag, S. A.},
  title = {On the elimination of aliasing in finite-difference schemes by filtering high-wavenumber components},
  journal = {Journal of the Atmospheric Sciences}, volume = {28}, pages = {1074}, year = {1971}
}""",
    "ornstein_uhlenbeck": """@article{EswaranPope1988,
  author = {Eswaran, V. and Pope, S. B.},
  title = {An examination of forcing in direct numerical simulations of turbulence},
  journal = {Computers and Fluids}, volume = {16}, pages = {257--278}, year = {1988},
  doi = {10.1016/0045-7930(88)90013-8}
}""",
    "constant_power": """@article{Machiels1997,
  author = {Machiels, L.},
  title = {Predictability of small-scale motion in isotropic fluid turbulence},
  journal = {Physical Review Letters}, volume = {79}, pages = {3411--3414}, year = {1997},
  doi = {10.1103/PhysRevLett.79.3411}
}""",
    "composition4": """@article{Suzuki1990,
  author = {Suzuki, M.},
  title = {Fractal decomposition of exponential operators with applications to many-body theories and
           {Monte Carlo} simulations},
  journal = {Physics Letters A}, volume = {146}, pages = {319--323}, year = {1990}
}""",
    "composition6": """@article{KahanLi1997,
  author = {Kahan, W. and Li, R.-C.},
  title = {Composition constants for raising the orders of unconventional schemes for ordinary
           differential equations},
  journal = {Mathematics of Computation}, volume = {66}, pages = {1089--1099}, year = {1997}
}""",
    "kick_drift_kick": """@article{Strang1968,
  author = {Strang, G.},
  title = {On the construction and comparison of difference schemes},
  journal = {SIAM Journal on Numerical Analysis}, volume = {5}, pages = {506--517}, year = {1968}
}""",
    "taylor_green": """@article{TaylorGreen1937,
  author = {Taylor, G. I. and Green, A. E.},
  title = {Mechanism of the production of small eddies from large ones},
  journal = {Proceedings of the Royal Society A}, volume = {158}, pages = {499--521}, year = {1937}
}""",
    "orszag_tang": """@article{OrszagTang1979,
  author = {Orszag, S. A. and Tang, C.-M.},
  title = {Small-scale structure of two-dimensional magnetohydrodynamic turbulence},
  journal = {Journal of Fluid Mechanics}, volume = {90}, pages = {129--143}, year = {1979}
}""",
}
METHODS["drift_kick_drift"] = METHODS["kick_drift_kick"]
"""BibTeX entries by the name of a model, integrator, start, forcing or dealiasing."""
