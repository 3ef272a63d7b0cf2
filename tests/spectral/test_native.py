"""The native kernels: all variants, deterministic results, how they are built, and what is said
without them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from run_support import ROOT, tool
from spectral_cases import (
    Case,
    coefficients,
    compiled,
    error,
    modes_of,
    put,
    sample,
    slabs,
    transform,
    variants,
)

from simulator.errors import UserError
from simulator.spectral import native
from simulator.spectral.native import build

CONFIG = str(ROOT / "configs" / "taylor_green.yaml")
needs_kernels = pytest.mark.skipif(
    native.missing() is not None, reason="there are no native kernels here"
)


@needs_kernels
@pytest.mark.spmd
@pytest.mark.parametrize(
    "case",
    [
        Case(("custom_partitioning", "zx_y"), 2, "prime", kernels="native"),
        Case(("custom_partitioning", "z_y_x"), 4, "odd", "complex", "single", kernels="native"),
    ],
    ids=str,
)
def test_every_variant_agrees_with_numpy(case: Case):
    """The same compiled program, whichever instructions the kernels use: real and complex, single
    and double."""
    values = sample(case)
    expected = coefficients(case, values)
    forward = compiled(case, "forward")
    tried = []
    with variants() as choose:
        for variant in filter(choose, build.VARIANTS):
            tried.append(variant)
            modes = forward(put(case, values))
            assert error(modes, expected) < case.tolerance, variant
            back = forward(compiled(case, "inverse")(modes))
            assert error(back, expected) < case.tolerance, variant
    assert "baseline" in tried


@needs_kernels
def test_passes_of_two_to_sixteen_points_agree_with_numpy():
    """Extents whose passes take every radix that a variant knows."""
    with variants() as choose:
        for variant in filter(choose, build.VARIANTS):
            for shape in [(48, 128, 32), (8, 256, 20), (90, 96, 36), (14, 30, 27)]:
                of = slabs(shape, "zx_y", 1)
                values = np.random.default_rng(0).standard_normal((1, *shape))
                expected = modes_of(of.layout, values)
                modes = jax.jit(of.forward)(values)
                assert error(modes, expected) < 1e-13, (variant, shape)
                back = jax.jit(lambda m, of=of: of.forward(of.inverse(m)))(modes)
                assert error(back, expected) < 1e-13, (variant, shape)


@needs_kernels
@pytest.mark.spmd
def test_a_stage_leaves_no_loop_of_xla_around_it():
    """A whole transform is calls of the kernels and the exchange: nothing is padded, cut or
    transposed outside."""
    case = Case(("custom_partitioning", "zx_y"), 2, "even", kernels="native")
    layout = transform(case).layout
    modes = jax.ShapeDtypeStruct((2, *layout.shape), complex, sharding=layout.sharding(4))
    text = compiled(case, "inverse").lower(modes).compile().as_text()
    assert text.count('custom_call_target="simulator_stage"') == 2
    for loop in (" fft(", " pad(", " transpose(", " concatenate(", " copy("):
        assert loop not in text, loop


def python(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A Python process without CXX, with further variables of the environment."""
    environ = (
        {k: v for k, v in os.environ.items() if k != "CXX"} | {"PYTHONPATH": str(ROOT)} | environ
    )
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environ, cwd=folder, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    "arguments, code, told",
    [
        pytest.param(
            ["simulator", "doctor", CONFIG, "devices.platform=cpu"],
            0,
            "xla (no C++ compiler (g++, clang++, c++) is on",
            marks=pytest.mark.plugins("validation"),
        ),
        pytest.param(
            ["simulator", "doctor", CONFIG, "fft.kernels=native"],
            2,
            "command line: fft.kernels: native: no C++ comp",
            marks=pytest.mark.plugins("validation"),
        ),
        (["simulator.spectral.native"], 0, "apt-get install g++"),
    ],
    ids=["xla does the work", "native is refused", "a set-up is no failure"],
)
def test_without_a_compiler(tmp_path, arguments, code: int, told: str):
    done = python(tmp_path, "-m", *arguments, PATH=str(tmp_path), SIMULATOR_CACHE=str(tmp_path))
    (line,) = (line for line in (done.stdout + done.stderr).splitlines() if told in line)
    assert done.returncode == code and "apt-get install g++" in line


def test_a_compiler_that_fails_is_named(tmp_path: Path):
    broken = tool(tmp_path, "broken", "echo 'error: no such instruction' >&2; exit 1")
    environ = {"PATH": os.environ["PATH"], "CXX": str(broken), "SIMULATOR_CACHE": str(tmp_path)}
    with pytest.raises(
        build.Unavailable, match=r"broken cannot compile native kernels \(error: no such"
    ):
        build.library(environ)
    assert not list(tmp_path.rglob("*.so"))


@needs_kernels
@pytest.mark.parametrize(
    "which", ["folder", pytest.param("library", marks=pytest.mark.plugins("validation"))]
)
def test_a_library_that_others_may_write_is_not_loaded(tmp_path, which: str):
    environ = {"PATH": os.environ["PATH"], "SIMULATOR_CACHE": str(tmp_path / "cache")}
    there = build.library(os.environ)
    (folder := tmp_path / "cache" / "kernels").mkdir(parents=True)
    for path in (there, there.with_suffix(".sum")):
        shutil.copy(path, folder)
    made = build.library(environ)
    assert made == folder / there.name
    path = {"folder": folder, "library": made}[which]
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(
        build.Unavailable, match=f"others may write to {path}; empty it, then: chmod go-w"
    ):
        build.library(environ)
    if which == "library":
        done = python(
            tmp_path, "-m", "simulator", "doctor", CONFIG, "devices.platform=cpu", **environ
        )
        assert done.returncode == 0 and f"xla (others may write to {path}" in done.stdout


def test_gpus_have_no_native_kernels():
    assert native.chosen("auto", "gpu") == "xla"
    with pytest.raises(UserError, match="native is for processors"):
        native.chosen("native", "gpu")


@needs_kernels
@pytest.mark.slow
def test_a_damaged_library_is_built_again(tmp_path: Path):
    environ = {"PATH": os.environ["PATH"], "SIMULATOR_CACHE": str(tmp_path)}
    made = build.library(environ)
    made.write_bytes(made.read_bytes()[:1000])
    probe = "from simulator.spectral import native; print(native.load().variant)"
    done = python(tmp_path, "-c", probe, **environ)
    assert done.stdout.strip() in build.VARIANTS, done.stderr
    assert made.stat().st_size > 1000


CHECKS = [
    Path(__file__).with_name("native") / f"{name}.cc" for name in ("check", "check_particles")
]


@needs_kernels
@pytest.mark.parametrize("program", CHECKS, ids=lambda path: path.stem)
def test_a_check_fits_the_kernels(program: Path):
    """The slow tier runs these programs; a changed argument of a kernel fails here, in every run."""
    command = [build.compiler(os.environ), *build.FLAGS, "-fsyntax-only", "-I", str(build.SOURCES)]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_kernels
@pytest.mark.slow
def test_kernels_under_sanitizers(tmp_path: Path):
    """`native/check.cc` and `native/check_particles.cc`: stages, and sums and orders of particles,
    against their definition in every variant, with nothing read or written beside."""
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    compiler = build.compiler(os.environ)
    objects = build.objects(compiler, tmp_path, "check", flags, ("plan", "order"))
    options = (*build.FLAGS, *flags, "-I", str(build.SOURCES))
    for program in CHECKS:
        path = tmp_path / program.stem
        command = [compiler, *options, str(program), *map(str, objects), "-o", str(path)]
        subprocess.run(command, check=True)
        done = subprocess.run([str(path), "400"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
