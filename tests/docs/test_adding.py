"""The page on new parts: its five files, installed as a package, run as they stand."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from run_support import install

from simulator import open_run

PAGE = Path(__file__).parents[2] / "simulator/docs/internals/adding.md"


@pytest.mark.slow
def test_five_parts_of_another_package(tmp_path: Path) -> None:
    """A run with all of them on two devices, continued on one, equals one that is not interrupted."""
    blocks = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    package, (groups,) = tmp_path / "my_parts", [text for kind, text in blocks if kind == "toml"]
    package.mkdir()
    for kind, text in blocks:
        if kind == "python":
            (package / text.split()[1]).write_text(text)
    points = tomllib.loads(groups)["project"]["entry-points"]
    assert len(points) == 5 == len(list(package.iterdir()))
    lines = (f"[{group}]\n{name} = {value}\n" for group, part in points.items() for name, value in part.items())
    install(tmp_path, "my_parts", "".join(lines))
    (config,) = [text for kind, text in blocks if kind == "yaml"]
    (tmp_path / "run.yaml").write_text(config)
    once, twice = ["run", "run.yaml", "--output", "once"], ["run", "run.yaml", "--output", "twice"]
    commands = [once, [*twice, "time.max_steps=2"], [*twice, "devices.count=1"], ["verify", "twice"]]
    code = f"from simulator.cli import main\nfor c in {commands!r}: assert main(c) == 0, c"
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    done = subprocess.run([sys.executable, "-c", path + code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    runs = [open_run(tmp_path / name) for name in ("once", "twice")]
    moments = [run.series("moments")["moment"] for run in runs]
    assert moments[0].shape == (4, 4) and yaml.safe_load(config)["time"]["integrator"] == "heun"
    np.testing.assert_allclose(moments[1], moments[0], rtol=1e-12)
    energy = [run.diagnostics["energy"] for run in runs]
    np.testing.assert_allclose(2 * energy[0], moments[0][:, 1], rtol=1e-12)
