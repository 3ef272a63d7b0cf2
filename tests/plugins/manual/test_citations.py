"""The command `cite`."""

import pytest
from shipped_runs import shipped_runs

from simulator.cli import main


@pytest.mark.parametrize("case", shipped_runs(), ids=lambda path: path.stem)
def test_a_case_can_be_cited(case, capsys):
    assert main(["cite", str(case)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("@software{simulator,") and printed.count("{") == printed.count("}")
    assert ("TaylorGreen1937" in printed) == case.stem.startswith("taylor_green")
