"""Everything needed to launch a plan, in the spelling of the framework that runs it."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from costmodel.errors import InputError
from costmodel.spec import ClusterSpec, ModelSpec, TrainingSpec
from planner.export.target import Launch, Target
from planner.files import write_files
from planner.plans import Plan

__all__ = ["TARGET_NAMES", "export", "target"]

_MODULES: Mapping[str, str] = {
    "megatron": "megatron",
    "megatron-bridge": "megatron_bridge",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "huggingface-trainer": "huggingface_trainer",
    "nanotron": "nanotron",
    "galvatron": "galvatron",
}
TARGET_NAMES: tuple[str, ...] = tuple(_MODULES)


def target(name: str) -> Target:
    """Return the target called ``name``.

    Raises:
        InputError: If there is none.
    """
    if name not in _MODULES:
        raise InputError("must be a known target", key="export", value=name, nearest=TARGET_NAMES)
    found: Target = import_module(f"planner.export.{_MODULES[name]}").TARGET
    return found


def export(
    plan: Plan,
    *,
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    target_name: str,
    directory: Path,
) -> tuple[Path, ...]:
    """Write the files that launch ``plan`` and return their paths.

    Raises:
        InputError: If there is no such target, if it cannot express the plan (naming field and reason), or if
            the directory cannot be written. Nothing is written then.
    """
    chosen = target(target_name)
    launch = Launch(plan=plan, model=model, cluster=cluster, training=training)
    chosen.check(launch)
    return write_files(directory, chosen.files(launch))
