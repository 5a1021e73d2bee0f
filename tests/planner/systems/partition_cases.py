"""The three models on which SageMaker's partition and the planner's placement are compared."""

from dataclasses import dataclass
from functools import lru_cache

from planner.chain import Chain, ChainPlan, evaluate, place
from planner.module_tree import Module, tree_of
from planner.sagemaker import partition
from planner.scenario_file import scenario_from_mapping
from planner.scenario_pricer import make_pricer
from tests.planner.systems.unet import unet

MODELS = ("gpt2-xl", "t5-3b", "unet")
RANKS = (2, 4, 8)
WEIGHTS = (0.0, 0.2, 0.8, 1.0)
LIMIT_BYTES = 38 * 2**30
NVLINK_S, NVLINK_BYTES_PER_S = 1e-5, 2.4e11
"""A transfer between two A100 of a p4d: latency, and 80 % of 300 GB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Both placements of one model on one number of ranks; ``ours`` is None where nothing fits."""

    chain: Chain
    ours: ChainPlan | None
    theirs: ChainPlan


@lru_cache
def tree(model: str) -> Module:
    if model == "unet":
        return unet()
    data = {
        "model": model,
        "cluster": {"name": "p4d", "gpus": 8},
        "training": {
            "global_batch": 64,
            "sequence": 512 if model.startswith("t5") else 1024,
            "framework": "sagemaker",
            "precision": "fp16",
        },
    }
    scenario = scenario_from_mapping(data)
    return tree_of(scenario, make_pricer(scenario), micro_batch=1)


def chain_of(model: str, ranks: int, limit_bytes: float = LIMIT_BYTES) -> Chain:
    return Chain(
        leaves=tree(model).leaves(),
        microbatches=4 * ranks,
        memory_limit_bytes=limit_bytes,
        hop_s=lambda size: NVLINK_S + size / NVLINK_BYTES_PER_S,
    )


def compared(model: str, ranks: int, weight: float, limit_bytes: float = LIMIT_BYTES) -> Compared:
    chain = chain_of(model, ranks, limit_bytes)
    ours = place(chain, ranks)
    return Compared(
        chain=chain,
        ours=evaluate(chain, ours) if ours else None,
        theirs=evaluate(chain, partition(tree(model), ranks, weight)),
    )
