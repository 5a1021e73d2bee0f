"""What the input pipeline must deliver: bytes a second that a plan reads, against what the storage gives."""

from collections.abc import Iterator

from costmodel.units import MB
from planner.plans import Plan
from planner.scenario import Scenario

TOKEN_BYTES = 4
"""Token numbers as 32-bit integers (Megatron-LM's indexed datasets hold 2 or 4 bytes a token)."""
PIXEL_BYTES = 1
"""Colour values of decoded images."""


def sample_bytes(scenario: Scenario) -> float:
    """Return bytes of one sample as read: token numbers, or the patches of an image; 0 where it is not known."""
    model, training = scenario.graph.model, scenario.training
    if model.patch_inputs:
        return float(training.sequence * model.patch_inputs * PIXEL_BYTES)
    if not model.vocab:
        return 0.0
    decoder = (training.decoder_sequence or training.sequence) if model.decoder_start else 0
    return float((training.sequence + decoder) * TOKEN_BYTES)


def read_bytes_per_s(plan: Plan, scenario: Scenario) -> float:
    """Return the bytes a second that all replicas of ``plan`` read together."""
    return sample_bytes(scenario) * plan.tokens_per_s / scenario.training.sequence


def input_sentences(plan: Plan, scenario: Scenario) -> Iterator[str]:
    """Say the read rate where a sample's size is known, with the storage's where the cluster names one."""
    rate = read_bytes_per_s(plan, scenario)
    if not rate:
        return
    samples = plan.tokens_per_s / scenario.training.sequence
    text = f"Input: {samples:,.1f} samples/s of {sample_bytes(scenario):,.0f} B, {rate / MB:,.3g} MB/s in all"
    storage = scenario.cluster.storage_bytes_per_s
    if storage:
        text += f", {rate / storage:.2%} of what the storage reads"
    if storage and rate > storage:
        text += ": the storage holds the plan back"
    yield text
