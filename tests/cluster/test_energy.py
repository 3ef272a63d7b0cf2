"""Energy from counters: which parts of a machine count, counters that begin again, each counter
once."""

import json
from pathlib import Path

import pytest

from simulator.cluster.energy import Meter, by_source, in_words, rapl_counters
from simulator.run.state_file import StateFile

EXTENT = 262_143_328_850
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


def count(root: Path, zone: str, microjoules: int) -> None:
    (root / "sys/class/powercap" / zone / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def root(tmp_path) -> Path:
    """A machine of two packages, whose counters stand at 0."""
    for zone, name in ZONES.items():
        folder = tmp_path / "sys/class/powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{EXTENT}\n")
        count(tmp_path, zone, 0)
    return tmp_path


def test_packages_and_memory_count_and_no_part_twice(root):
    """Cores are in their package; the platform, and its other interface, contain packages."""
    meter = Meter(rapl_counters(root))
    for power, zone in enumerate(ZONES):
        count(root, zone, 10**power * 1_000_000)
    joules = by_source([meter.joules()])
    meter.close()
    assert joules == {"RAPL": pytest.approx(1 + 100 + 1000)}
    assert in_words(joules) == "1.1 kJ by RAPL"


def test_a_counter_that_begins_again_goes_on(root):
    count(root, "intel-rapl:0", EXTENT - 1_000_000)
    meter = Meter(rapl_counters(root))
    for microjoules in (EXTENT - 500_000, 500_000, 2_000_000):
        count(root, "intel-rapl:0", microjoules)
        joules = meter.joules()
    meter.close()
    assert by_source([joules]) == {"RAPL": pytest.approx(3.0)}


def test_the_processes_of_a_host_share_its_counters(root):
    """Two processes here, the first of which began earlier, and one of another host."""
    meters = [Meter(rapl_counters(root))]
    count(root, "intel-rapl:1", 1_000_000)
    meters.append(Meter(rapl_counters(root)))
    count(root, "intel-rapl:1", 3_000_000)
    first, second = (meter.joules() for meter in meters)
    elsewhere = {"RAPL another-boot intel-rapl:1": 10.0, "NVML another-boot 0000:3B:00.0": 7.0}
    for meter in meters:
        meter.close()
    assert by_source([first, second, elsewhere]) == {"RAPL": pytest.approx(13.0), "NVML": 7.0}


def test_without_a_counter_that_can_be_read_there_is_no_energy(root):
    for zone in ZONES:  # as for a user, to whom the files of root are closed
        (root / "sys/class/powercap" / zone / "energy_uj").unlink()
    assert rapl_counters(root) == [] == rapl_counters(root / "none")
    assert by_source([Meter([]).joules()]) == {}


def test_a_run_adds_up_its_starts(tmp_path):
    def state() -> dict[str, object]:
        return json.loads((tmp_path / "state.json").read_text())

    for joules, total in (
        ({}, None),
        ({"RAPL": 2.0}, {"RAPL": 2.0}),
        ({"RAPL": 3.0}, {"RAPL": 5.0}),
    ):
        start = StateFile(tmp_path, 1.0)
        start.continues()
        start.took(joules)
        start.ended("failed", "a test")
        assert state().get("energy") == total and ("energy" in state()) == (total is not None)
