#!/usr/bin/env python3
"""All measurements that need a GPU, in parts of a few minutes each.

    scripts/gpu_day [--output DIR] [--minutes 9] [--platform gpu|cpu] [--shapes 256,512]

A call begins where the last call stopped, and begins no part after --minutes; the next call tries a
failed part once more. `DIR/gpu_day.json` holds the measurements, and `DIR/gpu_day.md` is a page
made from them. The parts: the bytes that the device moves per second; the tests that need a GPU; a
step of every model in both precisions, compared with the planned memory and time; the transforms;
the largest grid that fits; a profile."""

import argparse
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "navier_stokes": "taylor_green",
    "boussinesq": "stratified",
    "mhd": "orszag_tang",
    "self_gravitating_gas": "self_gravitating_turbulence",
    "schrodinger_poisson": "fuzzy_dark_matter_box",
    "composite": "gas_and_waves",
}
JAX_NOTE = re.compile("-+$|For simplicity, JAX has removed its internal frames")
LONGEST = 570
"""Seconds after which a part is killed."""
MACHINE = """
import json, sys
from dataclasses import asdict
from simulator.config import load_config
from simulator.plan import this_machine
import jax
found = asdict(this_machine(load_config("configs/taylor_green.yaml", ["grid.shape=256,256,256"])))
found["kind"] = jax.devices()[0].device_kind
print(json.dumps(found))
"""
PROFILE = """
import sys, jax, numpy as np
from simulator import Simulation
from simulator.config import load_config
from simulator.simulation.advance import Until
simulation = Simulation(load_config(sys.argv[1], sys.argv[3:]), report=lambda line: None)
run, state = simulation.compiled_loop(), simulation.state
state = jax.block_until_ready(run(state, Until(np.float64(np.inf), np.float64(np.inf), np.int64(3))))
with jax.profiler.trace(sys.argv[2]):
    jax.block_until_ready(run(state, Until(np.float64(np.inf), np.float64(np.inf), np.int64(3))))
"""


class Part(NamedTuple):
    name: str
    command: list[str]
    result: Path | None = None
    """The JSON file that the command writes; None: the command prints its result."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("outputs/gpu_day"), metavar="DIR")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="minutes after which no part begins (default: 9)"
    )
    parser.add_argument("--platform", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument(
        "--shapes", default="256,512", help="points along an axis (default: 256,512)"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="duration of each measurement (default: 5)"
    )
    args = parser.parse_args()
    try:
        sides = [int(n) for n in args.shapes.split(",")]
    except ValueError:
        parser.error(f"--shapes: {args.shapes!r} is not a list of numbers; write e.g. 256,512")
    args.output.mkdir(parents=True, exist_ok=True)
    book = args.output / "gpu_day.json"
    found: dict[str, Any] = json.loads(book.read_text()) if book.exists() else {}
    began = time.monotonic()
    parts = list(parts_of(args, sides))
    left = [part for part in parts if not found.get(part.name, {}).get("done")]
    for number, part in enumerate(left):
        if number and time.monotonic() - began > 60 * args.minutes:
            print(f"{len(left) - number} of {len(parts)} parts are left: repeat the command")
            break
        found[part.name] = result = run(part, found.get(part.name, {}).get("tries", 0))
        print(
            f"{part.name}: {'done' if result['code'] == 0 else result['error']} ({result['seconds']:.0f} s)",
            flush=True,
        )
        beside = book.with_suffix(".new")
        beside.write_text(json.dumps(found, indent=1))
        beside.replace(book)
        (args.output / "gpu_day.md").write_text(page(found, sides, args.platform))
        if part.name == "machine" and result["code"]:
            return 1  # nothing else would work, and the machine is lent by the minute
    else:
        print(f"all {len(parts)} parts are done: {args.output / 'gpu_day.md'}")
    return 0


def parts_of(args: argparse.Namespace, sides: list[int]) -> Iterator[Part]:
    """All parts, the most important first, because time may run out."""
    simulator = [sys.executable, "-m", "simulator"]
    platform = f"devices.platform={args.platform}"
    yield Part("machine", [sys.executable, "-c", MACHINE])
    if args.platform == "gpu":
        tests = str(ROOT / "tests" / "simulation" / "test_on_gpu.py")
        yield Part("tests", [sys.executable, "-m", "pytest", "-q", "--gpu", tests])
    runs = list(itertools.product(sides, MODELS.items(), ("double", "single")))
    for side, (model, name), precision in runs:
        file = args.output.resolve() / f"step-{model}-{side}-{precision}.json"
        given = step_of(name, side, precision, platform)
        measured = ["--seconds", str(args.seconds), "--json", str(file)]
        yield Part(
            f"step {model} {side} {precision}",
            [*simulator, "bench", "step", *given, *measured],
            file,
        )
    trace = str(args.output.resolve() / "profile")
    shape = ",".join([str(max(sides))] * 3)
    yield Part(
        "profile",
        [
            sys.executable,
            "-c",
            PROFILE,
            config("taylor_green"),
            trace,
            platform,
            f"grid.shape={shape}",
        ],
    )
    for side, precision in itertools.product(sides, ("double", "single")):
        file = args.output.resolve() / f"fft-{side}-{precision}.json"
        bench = [sys.executable, str(ROOT / "scripts" / "bench_fft.py")]
        bench += ["--shape", f"{side},{side},{side}", "--precision", precision]
        bench += ["--platform", args.platform, "--devices", "1"]
        bench += ["--seconds", str(args.seconds), "--json", str(file)]
        yield Part(f"transforms {side} {precision}", bench, file)
    for side, (model, name), precision in runs:
        given = step_of(name, side, precision, platform)
        yield Part(f"plan {model} {side} {precision}", [*simulator, "plan", *given, "--json"])
    yield Part(
        "largest",
        [sys.executable, str(Path(__file__).resolve()), "--largest", platform, str(max(sides))],
    )


def step_of(name: str, side: int, precision: str, platform: str) -> list[str]:
    """The arguments that describe a case on one device."""
    shape = f"grid.shape={side},{side},{side}"
    return [config(name), platform, shape, f"precision={precision}", "--devices", "1"]


def config(name: str) -> str:
    return str(ROOT / "configs" / f"{name}.yaml")


def run(part: Part, tries: int) -> dict[str, Any]:
    """Execute a part and return its result. A part is done when it has succeeded once or failed
    twice."""
    began = time.monotonic()
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    }
    try:
        done = subprocess.run(
            part.command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LONGEST
        )
        code = done.returncode
        output = done.stdout
        error = done.stderr
    except subprocess.TimeoutExpired:
        code = 124
        output = ""
        error = f"took longer than {LONGEST} s"
    result: dict[str, Any] = {"code": code, "tries": tries + 1, "seconds": time.monotonic() - began}
    result["done"] = code == 0 or tries >= 1
    if code:
        lines = [
            line for line in (error or output).strip().splitlines() if not JAX_NOTE.match(line)
        ]
        result["error"] = lines[-1] if lines else "no message"
        result["log"] = lines[-40:]
    elif part.name == "profile":
        result["found"] = slowest_kernels(Path(part.command[4]))
    elif part.result is not None:
        result["found"] = json.loads(part.result.read_text())
    else:
        result["found"] = _json(output)
    return result


def slowest_kernels(folder: Path) -> list[dict[str, Any]]:
    """The kernels that take longest, with their share of the time and their number, from the trace
    that JAX wrote into `folder`."""
    trace = max(folder.rglob("*.trace.json.gz"), key=lambda file: file.stat().st_mtime)
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    named = [e for e in events if e.get("name") in ("process_name", "thread_name")]
    on_device = {e["pid"] for e in named if e["args"]["name"].startswith("/device:")}
    streams = {
        (e["pid"], e["tid"])
        for e in named
        if e["pid"] in on_device and e["args"]["name"].startswith("Stream")
    }
    times: dict[str, list[float]] = {}
    for event in events:
        if event.get("ph") != "X" or event["name"].startswith("$"):
            continue
        if not on_device or (event["pid"], event["tid"]) in streams:
            times.setdefault(event["name"], []).append(event["dur"] / 1000)
    total = sum(map(sum, times.values()))
    first = sorted(times, key=lambda name: -sum(times[name]))[:30]
    return [
        {
            "kernel": name,
            "calls": len(times[name]),
            "ms": sum(times[name]),
            "share": sum(times[name]) / total,
        }
        for name in first
    ]


def _json(output: str) -> Any:
    """The JSON in a command's output: all of the output, or its last line; else the last line as
    text."""
    lines = output.strip().splitlines() or [""]
    for text in (output, lines[-1]):
        try:
            return json.loads(text)
        except ValueError:
            continue
    return lines[-1]


def largest(platform: str, side: int) -> int:
    """Try a step on the largest grid that fits by the plan, then on smaller grids; print the first
    that works."""
    given = [
        "simulator",
        "plan",
        config("taylor_green"),
        platform,
        f"grid.shape={side},{side},{side}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", *given, "--devices", "1", "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    planned = json.loads(done.stdout)["largest_shape"] if done.returncode == 0 else [side] * 3
    shape = list(planned)
    if platform.endswith("cpu"):  # only a trial of this script
        shape = [min(n, side) for n in shape]
    while min(shape) >= 8:
        text = ",".join(map(str, shape))
        bench = [
            "bench",
            "step",
            config("taylor_green"),
            platform,
            f"grid.shape={text}",
            "--devices",
            "1",
            "--seconds",
            "1",
        ]
        if (
            subprocess.run(
                [sys.executable, "-m", "simulator", *bench], capture_output=True, cwd=ROOT
            ).returncode
            == 0
        ):
            print(json.dumps({"planned": planned, "ran": shape}))
            return 0
        shape = [n * 15 // 16 for n in shape]
    return 1


def page(found: dict[str, Any], sides: list[int], platform: str) -> str:
    """All results as a page in Markdown."""

    def of(name: str) -> Any:
        part = found.get(name, {})
        return part.get("found") if part.get("code") == 0 else None

    machine = of("machine") or {}
    rate = machine.get("bandwidth", 0.0)
    lines = [
        f"# A day on a {'GPU' if platform == 'gpu' else 'processor'}: {machine.get('kind', 'not measured')}",
        "",
    ]
    if machine:
        lines += [f"Steps of `taylor_green` at 256³ move {rate / 1e9:.0f} GB/s on each device.", ""]
    if "tests" in found:
        said = of("tests") or found["tests"].get("error")
        lines += [f"Tests that need a GPU: {said}", ""]
    lines += [
        "| model | grid | precision | step | planned | bytes | of that rate | memory, numbers a point | planned |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for side in sides:
        for model in MODELS:
            for precision in ("double", "single"):
                step = of(f"step {model} {side} {precision}")
                plan = of(f"plan {model} {side} {precision}")
                failed = found.get(f"step {model} {side} {precision}", {}).get("error")
                if step is None:
                    if failed:
                        lines.append(
                            f"| {model} | {side}³ | {precision} | {failed[:80]} | | | | | |"
                        )
                    continue
                held = f"{step['resident'] + step['temporary']:.2f}"
                row = [model, f"{side}³", precision, f"{1e3 * step['step']:.1f} ms"]
                if plan:
                    moved = plan["traffic_per_step"]
                    total = moved["bytes"]
                    share = total / step["step"] / rate if rate else 0.0
                    row += [
                        f"{1e3 * plan['seconds_per_step']:.1f} ms",
                        f"{total / 1e9:.3g} GB",
                        f"{share:.2f}",
                    ]
                    row += [held, f"{plan['memory_per_point']:.2f}"]
                else:
                    row += ["", "", "", held, ""]
                lines.append("| " + " | ".join(row) + " |")
    lines += [
        "",
        "Transforms of three components, median:",
        "",
        "| grid | precision | what | forward | inverse |",
    ]
    lines.append("| --- | --- | --- | --- | --- |")
    for side in sides:
        for precision in ("double", "single"):
            for row in (of(f"transforms {side} {precision}") or {}).get("transforms", []):
                times = f"{row['forward']:.2f} ms | {row['inverse']:.2f} ms"
                lines.append(f"| {side}³ | {precision} | {row['name']} | {times} |")
    if grid := of("largest"):
        shapes = {name: " x ".join(map(str, grid[name])) for name in ("planned", "ran")}
        lines += [
            "",
            f"Largest grid of `taylor_green`: planned {shapes['planned']}, a step was taken on {shapes['ran']}.",
        ]
    if kernels := of("profile"):
        lines += [
            "",
            "The slowest kernels of three steps of `taylor_green`, from the trace in `profile/`:",
        ]
        lines += ["", "| kernel | calls | time | share |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{k['kernel'][:80]}` | {k['calls']} | {k['ms']:.2f} ms | {100 * k['share']:.1f} % |"
            for k in kernels
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--largest"]:
        sys.exit(largest(sys.argv[2], int(sys.argv[3])))
    sys.exit(main())
