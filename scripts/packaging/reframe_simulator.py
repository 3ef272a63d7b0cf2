"""A test of ReFrame: `simulator validate` on a node of the site.

    reframe -c scripts/packaging/reframe_simulator.py -r

Set `valid_systems`, `valid_prog_environs` and `modules` to those of the site, for example with
-S modules=simulator; -S num_tasks=2 starts two processes with the launcher of the partition. The test
needs nothing but the installed command."""

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import sanity_function


@rfm.simple_test
class SimulatorValidation(rfm.RunOnlyRegressionTest):
    """All default cases are within their tolerances."""

    descr = "simulator validate: exact solutions and published numbers"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "simulator"
    executable_opts = ["validate"]
    time_limit = "10m"

    @sanity_function
    def within_tolerances(self):
        return sn.assert_found(r"^\d+ cases in .+, all within their tolerances$", self.stdout)
