"""Volume pictures, made where the data are: emission and absorption along rays through the box."""

from simulator.rendering.camera import Camera
from simulator.rendering.transfer import Transfer
from simulator.rendering.volume import Volume

__all__ = ["Camera", "Transfer", "Volume"]
