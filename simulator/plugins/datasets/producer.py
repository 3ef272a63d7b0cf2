"""The process that computes the trajectories of `TrajectoryStream.beside`:
python -m simulator.plugins.datasets.producer ORDER."""

import json
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Client
from typing import Any

import numpy as np

from simulator.errors import RunFailure, UserError
from simulator.plugins.datasets.beside import SECRET, send, send_end
from simulator.plugins.datasets.stream import StreamedRuns, stream


def produce(order: dict[str, Any]) -> int:
    """Streams the study to the training that has started this process; returns the exit code."""
    address = (order.pop("host"), order.pop("port"))
    try:
        parts = stream(order.pop("study"), **order)
        with Client(address, authkey=os.environ[SECRET].encode()) as connection:
            for part in parts:
                for run, parameters, arrays in _samples(part):
                    send(connection, run, parameters, arrays)
            send_end(connection)
    except (UserError, RunFailure) as error:
        print(str(error).splitlines()[-1], file=sys.stderr)
        return 1
    except (BrokenPipeError, ConnectionResetError):  # the training has ended
        return 0
    return 0


def _samples(
    part: StreamedRuns,
) -> Iterator[tuple[int, dict[str, float], dict[str, np.ndarray]]]:
    fields = {name: np.asarray(values) for name, values in part.fields.items()}
    for place, run in enumerate(part.runs):
        numbers = {
            key: float(value)
            for key, value in run.values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        arrays = {"time": part.time, **{n: values[place] for n, values in fields.items()}}
        yield run.index, numbers, arrays


if __name__ == "__main__":
    sys.exit(produce(json.loads(sys.argv[1])))
