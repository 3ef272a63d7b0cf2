"""The XDMF sidecar: lets ParaView and VisIt open an index file without a converter.

XDMF lists the slowest axis of an array first and readers call it Z. Arrays here are (x, y, z) with z the
fastest, so a reader's (X, Y, Z) are the run's (z, y, x), and the components of vectors are joined in that
order: arrows point where they should among the axes shown.
"""

from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np

from simulator.files import write_durably
from simulator.storage.commit import derived_files
from simulator.storage.index import field_path
from simulator.storage.manifest import FieldEntry, Manifest


def drawable(entry: FieldEntry) -> bool:
    """Real fields over three axes of physical space, scalars or 3-vectors."""
    return (
        len(entry.axes) == 3
        and all(a.spacing is not None for a in entry.axes)
        and np.dtype(entry.dtype).kind in "fiu"
        and entry.shape[:-3] in ((), (3,))
    )


def write_xdmf(folder: Path, manifest: Manifest) -> Path:
    """Write the sidecar of a committed folder beside it, replacing any. Raises OSError as it comes."""
    index, path = derived_files(folder)
    write_durably(path, [to_xdmf(manifest, index.name)])
    return path


def to_xdmf(manifest: Manifest, index: str) -> bytes:
    """The XML for the fields that can be drawn; `index` is the name of the HDF5 file beside it."""
    root = ET.Element("Xdmf", Version="2.0")
    domain = ET.SubElement(root, "Domain")
    ET.SubElement(domain, "Information", Name="axes", Value="X, Y, Z here are z, y, x of the run")
    grids: dict[tuple, ET.Element] = {}
    for name, entry in manifest.fields.items():
        if not drawable(entry):
            continue
        if entry.axes not in grids:
            grids[entry.axes] = _grid(domain, entry, manifest.time, len(grids))
        paths = [path for _, path in entry.component_paths(name)]
        attribute = ET.SubElement(
            grids[entry.axes],
            "Attribute",
            Name=name,
            AttributeType="Vector" if entry.components else "Scalar",
            Center="Node",
        )
        if entry.components:
            attribute = ET.SubElement(
                attribute,
                "DataItem",
                ItemType="Function",
                Function="JOIN($0, $1, $2)",
                Dimensions=_numbers((*entry.extents, 3)),
            )
        dtype = np.dtype(entry.dtype)
        for path in reversed(paths):
            item = ET.SubElement(
                attribute,
                "DataItem",
                Format="HDF",
                NumberType={"f": "Float", "i": "Int", "u": "UInt"}[dtype.kind],
                Precision=str(dtype.itemsize),
                Dimensions=_numbers(entry.extents),
            )
            item.text = f"{index}:{field_path(manifest, path)}"
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _grid(domain: ET.Element, entry: FieldEntry, time: float, number: int) -> ET.Element:
    grid = ET.SubElement(domain, "Grid", Name=f"grid{number}", GridType="Uniform")
    ET.SubElement(grid, "Time", Value=repr(time))
    extents = _numbers(entry.extents)
    ET.SubElement(grid, "Topology", TopologyType="3DCoRectMesh", Dimensions=extents)
    geometry = ET.SubElement(grid, "Geometry", GeometryType="ORIGIN_DXDYDZ")
    for values in ([a.origin for a in entry.axes], [a.spacing for a in entry.axes]):
        item = ET.SubElement(
            geometry, "DataItem", Dimensions="3", NumberType="Float", Precision="8", Format="XML"
        )
        item.text = _numbers(values)
    return grid


def _numbers(values: object) -> str:
    return " ".join(repr(v) for v in values)  # type: ignore[attr-defined]
