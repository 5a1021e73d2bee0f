"""Which measured tables price a plan: profiles of a folder, their device and their collectives.

A folder holds ``operators.csv`` and ``collectives.csv``, and a ``profiles.yaml`` that names each profile's device in the
catalog and its sources of collectives. Where there is no ``profiles.yaml`` the device is the one whose name the GPU type spells.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.fields import nearest_names
from costmodel.importers.operators import (
    collective_sources,
    collective_table,
    gpu_types,
    read_operators,
)
from costmodel.load import read_yaml
from costmodel.recompose.operator_prices import OperatorPrices
from costmodel.recompose.plan_file import MeasuredPlan

PROFILES = catalog.ROOT / "profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile of a folder.

    Attributes:
        gpu_type: As the operator table writes it.
        device: Name in the catalog; empty if the GPU type spells none.
        collectives: Sources of collectives in the order in which they are asked.
    """

    gpu_type: str
    device: str
    collectives: tuple[str, ...]


def plan_prices(plan: MeasuredPlan, folder: Path = PROFILES) -> OperatorPrices:
    """Return the prices for a plan: of the profile it names, or else the first of its GPU type.

    Raises:
        InputError: If the folder knows neither.
    """
    known = _profiles(folder)
    device = _device_of(plan.gpu_type)
    same = (
        name
        for name, profile in known.items()
        if plan.gpu_type == profile.gpu_type or device == profile.device != ""
    )
    name = plan.profile if plan.profile in known else next(same, None)
    if name is None:
        raise InputError(
            "has no profile: neither the plan's own nor one of its GPU type",
            file=str(folder),
            key=f"profile {plan.profile}, gpu_type",
            value=plan.gpu_type,
            nearest=[f"{name} ({profile.gpu_type})" for name, profile in sorted(known.items())],
        )
    return profile_prices(name, folder)


@cache
def profile_prices(profile: str, folder: Path = PROFILES) -> OperatorPrices:
    """Return the prices of a profile of the folder.

    Raises:
        InputError: If the folder does not know the profile, or its device is not in the catalog.
    """
    known = _profiles(folder)
    if profile not in known:
        raise InputError(
            "is no profile",
            file=str(folder),
            key="profile",
            value=profile,
            nearest=nearest_names(profile, known),
        )
    entry = known[profile]
    if not entry.device:
        raise InputError(
            "spells no device of the catalog: name it in profiles.yaml, {profile: {device: .., collectives: [..]}}",
            file=str(folder / "operators.csv"),
            key="gpu_type",
            value=entry.gpu_type,
            nearest=nearest_names(entry.gpu_type, catalog.names("devices")),
        )
    device = catalog.device(entry.device)
    return OperatorPrices(
        rows=read_operators(folder / "operators.csv", profile),
        collectives=collective_table(folder / "collectives.csv", entry.collectives, device.name),
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
    )


@cache
def _profiles(folder: Path) -> dict[str, Profile]:
    """Return the profiles of the operator table, with what ``profiles.yaml`` says of them."""
    file = folder / "profiles.yaml"
    stated = cast("Mapping[str, object]", read_yaml(file)) if file.exists() else {}
    sources = collective_sources(folder / "collectives.csv")
    found: dict[str, Profile] = {}
    for name, gpu_type in gpu_types(folder / "operators.csv").items():
        entry = stated.get(name)
        own = tuple(source for source in sources if source == name)
        if entry is None:
            found[name] = Profile(gpu_type=gpu_type, device=_device_of(gpu_type), collectives=own)
        else:
            found[name] = _stated(entry, gpu_type, file, name)
    return found


def _stated(entry: object, gpu_type: str, file: Path, name: str) -> Profile:
    if not isinstance(entry, Mapping) or not {"device", "collectives"} <= set(entry):
        raise InputError("must give device and collectives", file=str(file), key=name, value=entry)
    return Profile(
        gpu_type=gpu_type, device=str(entry["device"]), collectives=tuple(entry["collectives"])
    )


def _device_of(gpu_type: str) -> str:
    """Return the device all of whose parts begin parts of the GPU type, the most specific; empty if there is none.

    ``A100-SXM4-40GB`` spells ``a100-sxm-40gb``, ``L4-24GB`` spells ``l4``.
    """
    given = gpu_type.lower().replace("_", "-").replace(" ", "-").split("-")
    spelled = [
        name
        for name in catalog.names("devices")
        if all(any(part.startswith(word) for part in given) for word in name.split("-"))
        and name.split("-")[0] in given
    ]
    return max(spelled, key=lambda name: (name.count("-"), name), default="")
