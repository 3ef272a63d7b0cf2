"""The base of small studies."""

BASE = """\
name: tiny
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [8, 8, 8]}
initial: {kind: taylor_green}
time: {stop: 0.1, dt: 0.02}
devices: {platform: cpu, count: 1}
output: {directory: out, diagnostics: {every_steps: 1}, spectra: {every: 0.05}}
"""
