"""The shipped catalog: complete, sourced, and exact in its parameter counts."""

import math

import pytest

from costmodel import catalog
from costmodel.catalog import CatalogKind
from costmodel.errors import InputError
from costmodel.fields import as_fields
from costmodel.graph import build_graph
from costmodel.load import read_yaml

KINDS: tuple[CatalogKind, ...] = ("models", "devices", "networks", "clusters")


@pytest.mark.parametrize("name", catalog.names("models"))
def test_parameters_of_every_catalog_model_are_exact(name: str) -> None:
    model = catalog.model(name)
    assert build_graph(model).parameters == catalog.expected_parameters(name)
    assert model.name == name
    assert model.source
    assert model.notes == ()


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-405b", 405.9),
        ("gpt3-175b", 174.6),
        ("gpt-530b", 529.6),
        ("gpt-1t", 1008.0),
        ("gpt-145b", 145.6),
        ("deepseek-v3", 671.0),
        ("mpt-70b", 64.86),
        ("gemma-3-27b", 27.0),
        ("mixtral-8x7b", 46.7),
        ("bert-large", 0.336),
        ("grok-1", 315.7),
    ],
)
def test_famous_models_have_their_published_size(name: str, billions: float) -> None:
    parameters = build_graph(catalog.model(name)).parameters / 1e9
    assert math.isclose(parameters, billions, rel_tol=1e-3)


def test_the_catalog_is_as_large_as_promised() -> None:
    assert len(catalog.names("models")) >= 100
    assert len(catalog.names("devices")) >= 35
    assert len(catalog.names("clusters")) >= 70


@pytest.mark.parametrize("name", catalog.names("devices"))
def test_every_device_is_whole_and_each_number_names_its_source(name: str) -> None:
    device = catalog.device(name)
    assert 0 < device.usable_bytes < device.memory_bytes
    assert device.bandwidth_bytes_per_s > 1e11
    assert {"fp16", "fp32"} <= set(device.peak_flops)
    for fast, slow in (("fp8", "bf16"), ("fp16", "tf32"), ("fp16", "fp32")):
        if fast in device.peak_flops and slow in device.peak_flops:
            assert device.peak_flops[fast] >= device.peak_flops[slow]
    assert device.multiprocessors >= 36
    for number in ("memory", "bandwidth", "peak_tflops", "multiprocessors"):
        assert f"{number}: " in device.source


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_every_cluster_has_levels_that_nest_up_to_the_whole(name: str) -> None:
    cluster = catalog.cluster(name, 128)
    assert cluster.gpus == 128
    *inner, outer = [level.gpus for level in cluster.levels]
    assert outer == 0
    assert inner == sorted(set(inner))
    assert all(level.source and level.latency_s > 0 for level in cluster.levels)
    assert inner[-1] >= cluster.gpus_per_node
    speeds = [level.bandwidth_bytes_per_s for level in cluster.levels]
    assert speeds == sorted(speeds, reverse=True)


def test_every_network_serves_some_cluster_or_scenario() -> None:
    for name in catalog.names("networks"):
        level = catalog.network(name, 8)
        assert 0 < level.bandwidth_bytes_per_s <= 1e11


def test_a_cluster_scales_by_gpus_and_defaults_to_one_node() -> None:
    assert catalog.cluster("dgx-h100").gpus == 8
    assert catalog.cluster("dgx-h100", 64).groups[0].nodes == 8
    assert catalog.cluster("dgx-h100", 12).groups[0].nodes == 2


def test_network_bandwidth_is_shared_by_the_gpus_of_a_node() -> None:
    assert catalog.network("efa-400g", 8).bandwidth_bytes_per_s == pytest.approx(6.25e9)


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [
        ("model", "llama-3.1-70B", "llama-3.1-70b"),
        ("model", "gpt-3-175b", "gpt3-175b"),
        ("device", "h100-sxm5", "h100-sxm"),
        ("cluster", "dgx-h10", "dgx-h100"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(kind: str, name: str, nearest: str) -> None:
    with pytest.raises(InputError, match="is not in the catalog") as caught:
        getattr(catalog, kind)(name)
    assert nearest in str(caught.value)


def test_zero_gpus_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        catalog.cluster("dgx-h100", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_the_catalog_appears_in_two_files(kind: CatalogKind) -> None:
    seen: list[str] = []
    for path in sorted((catalog.ROOT / kind).glob("*.yaml")):
        seen += as_fields(read_yaml(path), str(path)).values
    assert len(seen) == len(set(seen)) == len(catalog.names(kind))
    assert all(name == name.lower() for name in seen)
