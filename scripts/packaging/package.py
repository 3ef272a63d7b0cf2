"""A recipe for Spack.

    spack repo create site && cp scripts/packaging/package.py .../site/packages/py_simulator/
    spack install py-simulator

The versions are those of pyproject.toml; a test compares them. Spack has no py-jaxdecomp: without it the
program has one backend of transforms less. OWNER: `url` or `git`, once the project has an address; until
then build from a checkout: spack develop --path CHECKOUT py-simulator@main."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PySimulator(PythonPackage):
    """Pseudo-spectral fluids and self-gravitating matter in a periodic box, on JAX, under Slurm."""

    homepage = "OWNER"
    git = "OWNER"

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    depends_on("gcc", type="run")  # compiles the native kernels at the first run
    depends_on("py-setuptools@68:", type="build")
    depends_on("py-setuptools-scm@8:", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:3.14")
        depends_on("py-jax@0.10:0.12")
        conflicts("^py-jax@0.10.2,0.11.0,0.11.1")
        depends_on("py-jaxlib@0.10:0.12")
        conflicts("^py-jaxlib@0.10.2,0.11.0,0.11.1")
        depends_on("py-jaxtyping@0.3:")
        depends_on("py-packaging")
        depends_on("py-h5py@3.11:")
        depends_on("py-numpy@1.26:")
        depends_on("py-pyyaml@6.0:")
        depends_on("py-matplotlib@3.8:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-scipy@1.11:")
        depends_on("py-pydantic@2.10:")
        depends_on("py-rich@13:")
        depends_on("py-xxhash@3.4:")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def validate(self):
        """Compare the installation with exact solutions and published numbers."""
        with working_dir(self.stage.path):
            Executable(self.prefix.bin.simulator)("validate")
