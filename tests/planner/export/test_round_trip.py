"""Whatever Megatron can express comes back the same: random plans through flags and back."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.errors import InputError
from costmodel.strategy import Schedule, Strategy
from planner.export.megatron import TARGET, flag_lines
from planner.export.target import Launch
from planner.megatron_reader import megatron_run
from planner.megatron_text import plain_flags
from tests.planner.export.export_cases import deepseek, gpt2, gpt_oss, launch, llama, mixtral

MODELS = {
    "gpt2": gpt2(),
    "llama": llama(24),
    "mixtral": mixtral(),
    "mla": deepseek(),
    "oss": gpt_oss(),
}


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """Draw a strategy with a placement of any cut and any recomputation."""
    model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    pp, vpp = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (4, 3)]))
    tp, cp, dp = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    schedule: Schedule = "interleaved" if vpp > 1 else "1f1b"
    experts = any(kind.mlp and kind.mlp.experts for kind in model.kinds)
    strategy = Strategy(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=draw(st.sampled_from([1, 2])) if experts else 1,
        etp=draw(st.sampled_from([1, tp])) if experts else 1,
        vpp=vpp,
        micro_batch=draw(st.integers(1, 3)),
        microbatches=pp * draw(st.integers(1, 4)),
        schedule=schedule,
        zero=draw(st.sampled_from([0, 1, 2, 3])),
        sequence_parallel=tp > 1 and draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        offload_optimizer=draw(st.sampled_from([0.0, 0.25, 1.0])),
        placement_order=draw(st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])),
    )
    cuts = sorted(
        draw(
            st.lists(
                st.integers(0, len(model.layers)), min_size=pp * vpp - 1, max_size=pp * vpp - 1
            )
        )
    )
    edges = [0, *cuts, len(model.layers)]
    counts = [right - left for left, right in pairwise(edges)]
    block = draw(st.integers(0, 3))
    again = [min(block, count) for count in counts]
    return launch(model, strategy, counts, again)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(launches())
def test_a_plan_is_refused_or_comes_back_the_same(case: Launch) -> None:
    if any(TARGET.refuse(case)):
        with pytest.raises(InputError, match="cannot express this plan"):
            TARGET.check(case)
        return
    TARGET.check(case)
    text = "\n".join(" ".join(line) for line in flag_lines(case))
    run = megatron_run(plain_flags(text), case.strategy.gpus)
    whole = case.recomputes_all and case.strategy.recompute != "full" and any(case.recomputed)
    expected = "full" if whole else case.strategy.recompute
    order = run.strategy.placement_order
    assert run.placement == case.placement
    assert run.training == case.training
    assert run.strategy.recompute == expected
    shared: dict[str, Any] = {"recompute": expected, "placement_order": order}
    assert run.strategy == replace(case.strategy, **shared)
    if case.strategy.dp > 1 and case.strategy.pp > 1:
        assert order == case.strategy.placement_order
