"""A torch ``nn.Module`` of the user's becomes a ModelGraph, without weights, data or a GPU.

The module runs once on the meta device. Each distinct block runs forward and backward by itself and is counted:
FLOPs (torch.utils.flop_counter's formulas), bytes moved, tensors saved for the backward pass; equal blocks later
in the network are not run again. What a later block still needs is what a pipeline cut behind a block hands on,
skip connections included. Modules that cannot run on meta (transformers >= 5) run on fake CPU tensors.
"""

import copy
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from costmodel.errors import InputError
from costmodel.graph import ModelGraph
from planner.traced_graph import graph_of
from planner.tracing_run import Trace, tensors_in

Builder = Callable[[], tuple[nn.Module, tuple[Any, ...]]]

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def load_builder(text: str) -> Builder:
    """Import ``package.module:function``; the function returns a module and a tuple of example inputs.

    Raises:
        InputError: If there is no such module or function.
    """
    module_name, _, name = text.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"cannot be imported: {error}", key="module", value=text) from error
    finally:
        sys.path.remove(here)
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(item for item in vars(module) if callable(getattr(module, item)))
        rule = "must be package.module:function"
        raise InputError(rule, key="module", value=text, nearest=known[:8])
    builder: Builder = function
    return builder


def trace_builder(builder: Builder, name: str, element_bytes: int = 2) -> ModelGraph:
    """Build a module on the meta device and trace it; see ``trace_module``.

    Raises:
        InputError: If the builder fails or returns something else, or as ``trace_module``.
    """
    try:
        with torch.device("meta"):
            built = builder()
    except Exception as error:
        rule = f"failed with {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InputError(rule, key="module", value=name) from error
    if not _is_built(built):
        raise InputError("must return a module and a tuple of inputs", key="module", value=name)
    module, inputs = built
    return trace_module(module, inputs, name=name, element_bytes=element_bytes)


def _is_built(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], nn.Module)


def trace_module(
    module: nn.Module, inputs: Sequence[Any], *, name: str = "module", element_bytes: int = 2
) -> ModelGraph:
    """Return the graph of a module as it runs on ``inputs``; the module itself is left alone.

    Args:
        module: Any network; its repeated blocks are found from its containers.
        inputs: Example inputs; the first dimension of the first tensor is the number of samples.
        name: Name of the model in reports.
        element_bytes: Size of a floating-point activation in training (2 for bf16 and fp16).

    Raises:
        InputError: If there is no tensor among the inputs, or the module cannot run on tensors without data.
    """
    tensors = tensors_in(tuple(inputs))
    if not tensors or tensors[0].ndim == 0:
        raise InputError("must hold a tensor with a batch dimension", key="module.inputs")
    samples = tensors[0].shape[0]
    errors: list[Exception] = []
    for place in (_on_meta, _on_fake_cpu):
        try:
            with place(module, inputs) as (twin, arguments):
                trace = Trace(twin, element_bytes)
                trace.run(arguments, find_blocks(twin))
        except (RuntimeError, NotImplementedError, TypeError) as error:
            errors.append(error)
            continue
        return graph_of(name, trace.blocks(samples), element_bytes)
    reason = " ".join(str(errors[-1]).split())[:200]
    raise InputError(f"cannot run on tensors without data: {reason}", key="module", value=name)


@contextmanager
def _on_meta(module: nn.Module, inputs: Sequence[Any]) -> Iterator[tuple[nn.Module, Any]]:
    yield _empty((module, tuple(inputs)), torch.device("meta"))


@contextmanager
def _on_fake_cpu(module: nn.Module, inputs: Sequence[Any]) -> Iterator[tuple[nn.Module, Any]]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield _empty((module, tuple(inputs)), torch.device("cpu"))


def _empty(found: tuple[nn.Module, Any], device: torch.device) -> tuple[nn.Module, Any]:
    """Return copies of a module and its inputs without data; what is shared stays shared."""
    module, inputs = found
    twins: dict[int, Any] = {}
    for item in (*module.parameters(), *module.buffers()):
        empty = torch.empty_like(item, device=device)
        trained = item.requires_grad
        twins[id(item)] = nn.Parameter(empty, trained) if isinstance(item, nn.Parameter) else empty
    copied = copy.deepcopy(module, twins)
    return copied, tree_map(
        lambda x: torch.empty_like(x, device=device) if isinstance(x, Tensor) else x, inputs
    )


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """Return the modules that are placed as a whole: elements of containers, and single modules around them."""
    return list(dict.fromkeys(_expanded(module, inside=False, root=True)))


def _expanded(module: nn.Module, *, inside: bool, root: bool = False) -> Iterator[nn.Module]:
    container = isinstance(module, _CONTAINERS)
    children = list(module.children())
    if children and (root or container or (not inside and _holds_blocks(module))):
        for child in children:
            yield from _expanded(child, inside=inside or container)
    else:
        yield module


def _holds_blocks(module: nn.Module) -> bool:
    """Return whether somewhere below is a container with two or more composite modules."""
    return any(
        isinstance(item, _CONTAINERS)
        and sum(any(True for _ in child.children()) for child in item.children()) >= 2
        for item in module.modules()
    )
