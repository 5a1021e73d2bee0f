"""The knobs of SageMaker's model parallel library as bounds: its configuration in this planner's words.

Names, defaults and meanings are those of the library's configuration reference (SageMaker Python SDK documentation,
"smdistributed.modelparallel") and of arXiv 2111.05972.
"""

from collections.abc import Callable, Mapping

from costmodel.errors import InputError
from costmodel.fields import nearest_names
from planner.scenario import Bound

_KEY = "search.system"
_LETTERS = {"D": "dp", "P": "pp", "T": "tp-cp-ep"}
_NAMED_ORDERS = {"cluster": "DPT", "spread": "TPD"}
_MEMORY_WEIGHT = {"memory": 0.8, "speed": 0.2}


def bounds_of_knobs(options: Mapping[str, object]) -> dict[str, Bound]:
    """Return the bounds that the given knobs mean.

    ``pipeline: interleaved`` is the library's early backward (1F1B), not Megatron's virtual stages.

    Raises:
        InputError: If a knob or its value is not known.
    """
    for name in options:
        if name not in _KNOBS:
            near = nearest_names(name, _KNOBS) or tuple(_KNOBS)
            raise InputError("must be a knob of the library", key=f"{_KEY}.{name}", nearest=near)
    bounds: dict[str, Bound] = {}
    for name, value in options.items():
        bounds |= _KNOBS[name](name, value)
    return bounds


def memory_weight(options: Mapping[str, object]) -> float:
    """Return the weight of memory against compute in the library's partition, 0 to 1.

    ``memory_weight`` where given; else 0.8 under ``optimize: memory`` (the default) and 0.2 under ``speed``.
    """
    if isinstance(given := options.get("memory_weight"), int | float):
        return float(given)
    return _MEMORY_WEIGHT[str(options.get("optimize", "memory"))]


def rank_order(placement: str) -> str:
    """Return a placement strategy as ``placement_order``: its right-most letter has the nearest ranks.

    Raises:
        InputError: If it is neither a name nor a permutation of D, P and T.
    """
    letters = _NAMED_ORDERS.get(placement, placement)
    if sorted(letters) != sorted(_LETTERS):
        raise InputError(
            "must be a permutation of D, P and T",
            key=f"{_KEY}.placement_strategy",
            value=placement,
            nearest=(*_NAMED_ORDERS, "DPT"),
        )
    return "-".join(_LETTERS[letter] for letter in reversed(letters))


def _degree(decision: str) -> Callable[[str, object], dict[str, Bound]]:
    return lambda name, value: {decision: Bound(allowed=(_whole(name, value),))}


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(
            "must be a whole number of at least 1", key=f"{_KEY}.{name}", value=value, nearest=1
        )
    return value


def _one_of(
    name: str, value: object, choices: Mapping[object, dict[str, Bound]]
) -> dict[str, Bound]:
    if value not in choices:
        raise InputError(
            "must be one of its values", key=f"{_KEY}.{name}", value=value, nearest=tuple(choices)
        )
    return choices[value]


def _optimize(name: str, value: object) -> dict[str, Bound]:
    """Speed keeps activations whole on every tensor-parallel rank and communicates less; memory splits them."""
    split = Bound(allowed=(False,))
    return _one_of(name, value, {"speed": {"sequence_parallel": split}, "memory": {}})


def _weight(name: str, value: object) -> dict[str, Bound]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(
            "must be from 0 (time alone) to 1 (memory alone)",
            key=f"{_KEY}.{name}",
            value=value,
            nearest=0.8,
        )
    return {}


def _active(name: str, value: object) -> dict[str, Bound]:
    """A pipeline runs full only with as many micro-batches in flight as stages, so the cap is one on stages."""
    return {"pp": Bound(maximum=_whole(name, value))}


def _schedule(name: str, value: object) -> dict[str, Bound]:
    choices: dict[object, dict[str, Bound]] = {
        "simple": {"schedule": Bound(allowed=("gpipe",))},
        "interleaved": {"schedule": Bound(allowed=("1f1b",))},
    }
    return _one_of(name, value, choices)


def _sharding(name: str, value: object) -> dict[str, Bound]:
    choices: dict[object, dict[str, Bound]] = {
        True: {"zero": Bound(allowed=(1,))},
        False: {"zero": Bound(allowed=(0,))},
    }
    return _one_of(name, value, choices)


def _placement(name: str, value: object) -> dict[str, Bound]:
    del name
    return {"placement_order": Bound(allowed=(rank_order(str(value)),))}


_KNOBS: Mapping[str, Callable[[str, object], dict[str, Bound]]] = {
    "pipeline_parallel_degree": _degree("pp"),
    "partitions": _degree("pp"),
    "tensor_parallel_degree": _degree("tp"),
    "microbatches": _degree("microbatches"),
    "pipeline": _schedule,
    "optimize": _optimize,
    "memory_weight": _weight,
    "active_microbatches": _active,
    "placement_strategy": _placement,
    "shard_optimizer_state": _sharding,
}
