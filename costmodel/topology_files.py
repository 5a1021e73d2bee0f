"""Readers of wiring: the matrix of ``nvidia-smi topo -m`` and the XML of NCCL_TOPO_DUMP_FILE."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args
from xml.etree import ElementTree as ET

from costmodel import topology
from costmodel.errors import InputError
from costmodel.load import read_text
from costmodel.topology import Topology

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+$")
_NIC = re.compile(r"(NIC\d+|mlx\d+_\d+|[a-z]+[a-z0-9_]*\d+)$")
_NVLINK = re.compile(r"NV(\d+)$")
# Older drivers write SOC for SYS.
_WORDS = {word: word for word in get_args(topology.Path)} | {"SOC": "SYS"}

# PCI-SIG line codes: 8b/10b up to 5 GT/s, 128b/130b above.
_SLOW_GT_PER_S = 5.0
_SLOW_CODE, _FAST_CODE = 8 / 10, 128 / 130


def read_topology(path: Path | str) -> Topology:
    """Read a topology file of either form, told apart by its text.

    Raises:
        InputError: If the file cannot be read or is of neither form.
    """
    return parse_topology(read_text(path), str(path))


def parse_topology(text: str, file: str = "<topology>") -> Topology:
    """Read the text of a topology matrix or of a NCCL topology file.

    Raises:
        InputError: If it is of neither form.
    """
    return parse_xml(text, file) if text.lstrip().startswith("<") else parse_matrix(text, file)


def parse_matrix(text: str, file: str = "<topology>") -> Topology:
    """Read what ``nvidia-smi topo -m`` prints, colours and legend included.

    Raises:
        InputError: If there is no matrix, or it is not square, symmetric and made of known words.
    """
    lines = [_ANSI.sub("", line).split() for line in text.splitlines()]
    start = next((i for i, words in enumerate(lines) if _is_header(words)), None)
    if start is None:
        raise InputError("has no header row with GPU0", file=file)
    names = _columns(lines[start])
    gpus = [name for name in names if _GPU.match(name)]
    rows = _rows(lines[start + 1 :], gpus, file)
    columns = [names.index(name) for name in gpus]
    cells = [[rows[name][column] for column in columns] for name in gpus]
    _check(cells, gpus, file)
    return Topology(
        paths=tuple(tuple(_path(cell) for cell in row) for row in cells),
        nvlinks=tuple(tuple(_links(cell) for cell in row) for row in cells),
        nics=tuple(name for name in names if name not in gpus),
        file=file,
    )


def _is_header(words: list[str]) -> bool:
    return bool(words) and words[0] == "GPU0" and (len(words) < 2 or words[1] != "X")


def _columns(header: list[str]) -> list[str]:
    """Return the device columns; "CPU Affinity" and what follows are no devices."""
    names = []
    for word in header:
        if not (_GPU.match(word) or _NIC.match(word)):
            break
        names.append(word)
    return names


def _rows(lines: list[list[str]], gpus: list[str], file: str) -> dict[str, list[str]]:
    found = {words[0]: words[1:] for words in lines if words and words[0] in gpus}
    for name in gpus:
        if len(found.get(name, ())) < len(gpus):
            raise InputError(
                f"must have a cell for each of the {len(gpus)} GPUs", file=file, key=name
            )
    return found


def _check(cells: list[list[str]], gpus: list[str], file: str) -> None:
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            key = f"{gpus[i]}-{gpus[j]}"
            if cell not in _WORDS and not _NVLINK.match(cell):
                raise InputError(
                    "must be a word of the legend", file=file, key=key, value=cell, nearest="SYS"
                )
            if (cell == "X") != (i == j):
                raise InputError("must be X on the diagonal only", file=file, key=key, value=cell)
            if _path(cell) != _path(cells[j][i]) or _links(cell) != _links(cells[j][i]):
                raise InputError(
                    "must be the same both ways",
                    file=file,
                    key=key,
                    value=cell,
                    nearest=cells[j][i],
                )


def _path(cell: str) -> topology.Path:
    return cast("topology.Path", "NV" if _NVLINK.match(cell) else _WORDS[cell])


def _links(cell: str) -> int:
    match = _NVLINK.match(cell)
    return int(match[1]) if match else 0


def parse_xml(text: str, file: str = "<topology>") -> Topology:
    """Read the file that NCCL writes when NCCL_TOPO_DUMP_FILE is set.

    Raises:
        InputError: If it is no XML, declares a document type, or holds no GPU.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError("must not declare a document type", file=file)
    try:
        root = ET.fromstring(text)  # noqa: S314 - entities are refused above, size in load
    except ET.ParseError as error:
        raise InputError(f"is not valid XML: {error}", file=file) from error
    places = list(_gpu_places(root))
    if root.tag != "system" or not places:
        raise InputError("must be a NCCL topology with at least one GPU", file=file)
    bus = {place[-1].get("busid", ""): index for index, place in enumerate(places)}
    links = _xml_links([_gpu_of(place) for place in places], bus, file)
    nets = [net for net in root.iter("net") if _xml_int(net, "speed", file) > 0]
    return Topology(
        paths=tuple(
            tuple("NV" if links[i][j] else _xml_path(one, other) for j, other in enumerate(places))
            for i, one in enumerate(places)
        ),
        nvlinks=tuple(map(tuple, links)),
        nics=tuple(net.get("name", "net") for net in nets),
        network_bytes_per_s=sum(_xml_int(net, "speed", file) for net in nets) * 1e6 / 8,
        pcie_bytes_per_s=min(_xml_pcie(place[-1], file) for place in places),
        file=file,
    )


_Place = tuple[ET.Element, ...]


def _gpu_places(root: ET.Element) -> Iterator[_Place]:
    """Yield for each GPU the elements from its CPU down to its PCI function, in the order of the file."""
    waiting: list[tuple[ET.Element, _Place]] = [(root, ())]
    while waiting:
        node, above = waiting.pop()
        here = (*above, node) if node.tag in ("cpu", "pci") else above
        if node.tag == "pci" and node.find("gpu") is not None:
            yield here
        else:
            waiting += [(child, here) for child in reversed(node)]


def _gpu_of(place: _Place) -> ET.Element:
    return next(place[-1].iter("gpu"))


def _xml_links(gpus: list[ET.Element], bus: dict[str, int], file: str) -> list[list[int]]:
    """Return bonded links as the matrix shows them: all links of a GPU where they end in switches."""
    links = [[0] * len(gpus) for _ in gpus]
    switched = []
    for index, gpu in enumerate(gpus):
        to_switch = 0
        for nvlink in gpu.iter("nvlink"):
            count = _xml_int(nvlink, "count", file)
            peer = bus.get(nvlink.get("target", ""))
            if peer is None:
                to_switch += count
            elif peer != index:
                links[index][peer] += count
        switched.append(to_switch)
    for i, one in enumerate(switched):
        for j, other in enumerate(switched):
            if i != j and one and other:
                links[i][j] = min(one, other)
    return links


def _xml_path(one: _Place, other: _Place) -> topology.Path:
    if one is other:
        return "X"
    if one[0] is not other[0]:
        return "SYS"
    shared = sum(a is b for a, b in zip(one, other, strict=False))
    if shared == 1:
        return "PHB"
    return "PIX" if shared == len(one) - 1 == len(other) - 1 else "PXB"


def _xml_pcie(pci: ET.Element, file: str) -> float:
    """Return bytes/s of a port from its transfer rate and width; 0 where the file does not say."""
    match = re.match(r"([\d.]+) GT/s", pci.get("link_speed", ""))
    if match is None:
        return 0.0
    rate = float(match[1])
    code = _SLOW_CODE if rate <= _SLOW_GT_PER_S else _FAST_CODE
    return rate * 1e9 * _xml_int(pci, "link_width", file) * code / 8


def _xml_int(element: ET.Element, name: str, file: str) -> int:
    text = element.get(name, "0")
    if not text.isdigit():
        key = f"{element.tag}.{name}"
        raise InputError("must be a whole number", file=file, key=key, value=text)
    return int(text)
