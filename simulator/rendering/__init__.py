"""Volume pictures, rendered on the devices that hold the data: emission and absorption along rays through the box."""

from simulator.rendering.camera import Camera
from simulator.rendering.transfer import Transfer
from simulator.rendering.volume import Volume

__all__ = ["Camera", "Transfer", "Volume"]
