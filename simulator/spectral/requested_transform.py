"""The transform that a run asks for: checked, and chosen for the run's devices.

`fft.backend: auto` times the candidates briefly (`timing`)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jax.typing import DTypeLike

from simulator.cluster.cache_folders import base_folder
from simulator.cluster.start import Cluster
from simulator.errors import UserError
from simulator.spectral import native, staged
from simulator.spectral.backends import candidates, choose, most, preferred
from simulator.spectral.candidates import Candidate, Kernels, Modes, Shape
from simulator.spectral.collectives import Kind
from simulator.spectral.timing import Measurement, remembered
from simulator.words import counted

UNITARITY = {"single": "1e-9", "half_scaled": "1e-6"}
"""Lost mass of waves, for 32^3 values on 4 devices."""


class Chosen(NamedTuple):
    """The transform of a run."""

    candidate: Candidate  # Backend, plan, and arrangement of the devices.
    kernels: Literal["native", "xla"]
    """The implementation of local stages: native only if every process has compiled it."""
    measured: Mapping[str, Any] | None  # The choice of backend `auto`, and the conditions.


@dataclass(frozen=True)
class Request:
    """The modes that a run keeps, its precision, and the keys of `fft`. Every error message begins
    with a key."""

    modes: Modes
    dtype: DTypeLike
    backend: str
    decomposition: str
    mesh: Shape
    kernels: Kernels
    exchange: Kind
    waves: str | None = None  # The model of wave functions, which only unitary transforms keep.

    def candidates(self, count: int) -> list[Candidate]:
        """The ways to distribute the modes over `count` devices. Raises UserError if there are
        none."""
        return choose(self.modes, count, self.backend, self.decomposition, self.mesh)

    def most(self, limit: int, processes: int = 1) -> int | None:
        """The largest number of devices up to `limit` over which the modes and this many processes
        can be distributed; None if there is none."""
        bound = min(limit, most(self.modes, self.backend)) // processes * processes
        wanted = self.backend, self.decomposition, self.mesh
        return next(
            (n for n in range(bound, 0, -processes) if candidates(self.modes, n, *wanted)), None
        )

    def check(
        self, count: int | Literal["auto"], limit: int, processes: int = 1, members: int = 1
    ) -> None:
        """Raises UserError if the modes, the processes or the members of an ensemble cannot be
        distributed over `count` devices, or if the kernels or the number format of the exchanges
        are not available there. A count `auto` is a number up to `limit` that is not known yet."""
        if members > 1 and self.backend != staged.NAME:
            raise UserError(
                f"fft.backend: {self.backend} cannot lay members over devices; {staged.NAME} can"
            )
        self._check_exchange()
        if count == "auto":
            # The number is not known yet, only that every process has a device.
            if members > 1 or self.most(limit, processes) is not None:
                return
            count = processes
        if count % processes:
            nearest = max(count // processes, 1) * processes
            raise UserError(
                f"devices.count: {count} is not a multiple of {processes} processes; {nearest} is"
            )
        if count % members:
            can = max(count // members, 1) * members
            raise UserError(
                f"devices.count: {count} cannot be divided among members={members}; {can} can"
            )
        if self.modes.grid.dimensions == 1 and count > members:
            devices = counted(count // members, "device")
            raise UserError(
                f"devices.count: one dimension is not divided; 1 device is needed, not {devices}"
            )
        self.candidates(count // members)
        if self.kernels == "native":
            native.chosen(self.kernels, "cpu")

    def _check_exchange(self) -> None:
        kind = self.exchange
        if kind == "full":
            return
        if self.waves is not None:
            cost = (
                f"their unitarity ({UNITARITY[kind]} of the mass in every transform, against 1e-16)"
            )
            key = f"fft.exchange: {kind} would cost wave functions {cost}"
            raise UserError(f"{key}; remove the key for {self.waves}")
        if self.dtype == "float32" and kind == "single":
            anyway = "whose numbers are single anyway; full or half_scaled works"
            raise UserError(f"fft.exchange: has no effect with precision: single, {anyway}")
        if self.backend != staged.NAME:
            raise UserError(f"fft.exchange: {kind} needs fft.backend: {staged.NAME}")

    def chosen(
        self,
        cluster: Cluster,
        members: int = 1,
        earlier: Mapping[str, Any] | None = None,
        report: Callable[[str], None] = print,
    ) -> Chosen:
        """The transform on the devices of a cluster, or on each of `members` equal parts of the
        devices. All processes call this method, after `check`; the errors are the same. `earlier`:
        an earlier start's choice."""
        kernels = native.chosen(self.kernels, cluster.platform)
        if cluster.num_processes > 1:
            kernels = "native" if all(k == "native" for k in cluster.gather(kernels)) else "xla"
        found = self.candidates(len(cluster.devices) // members)
        if self.backend != "auto":
            return Chosen(preferred(self.modes, found, kernels, cluster.platform), kernels, None)
        choice = self._measured(cluster, kernels, earlier, report)
        wanted = (choice["backend"], choice["plan"], choice["on"])
        fastest = (c for c in found if (c.backend, c.plan, list(c.mesh)) == wanted)
        return Chosen(
            next(fastest, preferred(self.modes, found, kernels, cluster.platform)), kernels, choice
        )

    def _measured(
        self,
        cluster: Cluster,
        kernels: Literal["native", "xla"],
        earlier: Mapping[str, Any] | None,
        report: Callable[[str], None],
    ) -> Mapping[str, Any]:
        nodes = cluster.broadcast(
            -(-cluster.num_processes // max(cluster.allocation.local_processes, 1))
        )
        conditions = {
            "devices": len(cluster.devices),
            "processes": cluster.num_processes,
            "nodes": nodes,
            "kind": cluster.devices[0].device_kind,
            "decomposition": self.decomposition,
            "mesh": self.mesh if self.mesh == "auto" else list(self.mesh),
            "kernels": kernels,
        }
        known = cluster.broadcast(remembered(earlier))
        if known and all(known.get(key) == value for key, value in conditions.items()):
            return known
        shape = self.decomposition, self.mesh
        measurement = Measurement(
            self.modes, cluster.devices, self.dtype, *shape, kernels=kernels, nodes=nodes
        )
        said = report if cluster.is_first else lambda line: None
        fastest = measurement.fastest(base_folder(os.environ), cluster.broadcast, said)
        return {**conditions, **fastest}
