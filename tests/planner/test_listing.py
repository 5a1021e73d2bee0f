"""``shardplan catalog``: tables for people, JSON for programs, every entry of every kind."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from costmodel import catalog
from costmodel.errors import InputError
from planner.cli import cli
from planner.listing import KINDS, listing_json, listing_text


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_one_line_for_each_entry(kind: catalog.CatalogKind) -> None:
    lines = listing_text(kind).splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(catalog.names(kind))


def test_the_overview_names_everything() -> None:
    words = set(listing_text().split())
    for kind in KINDS:
        assert set(catalog.names(kind)) <= words


def test_rows_show_the_numbers_people_look_for() -> None:
    model = listing_text("models", "llama-3.1-70b")
    assert "70.55B" in model
    assert "64/8" in model
    device = listing_text("devices", "h100-sxm")
    assert "79.6 GiB" in device
    assert "3352 GB/s" in device
    cluster = listing_text("clusters", "dgx-h100")
    assert "nvlink 8 x 450 GB/s, then 8x-ndr-infiniband 50 GB/s" in cluster


def test_layers_of_several_kinds_are_counted_apart() -> None:
    assert "3 dense + 58 moe" in listing_text("models", "deepseek-v3")


def test_json_holds_base_units_and_sources() -> None:
    data = listing_json()
    assert data["schema"] == 1
    sizes = {model["name"]: model["parameters"] for model in data["models"]}
    assert sizes["llama-3.1-405b"] == 405853388800
    devices = {device["name"]: device for device in data["devices"]}
    assert devices["h100-sxm"]["peak_flops"]["bf16"] == 989.4e12
    assert set(devices["h100-sxm"]["sources"]) >= {"memory", "bandwidth", "peak_tflops"}
    clusters = {cluster["name"]: cluster for cluster in data["clusters"]}
    assert clusters["p5"]["levels"][1]["bandwidth_bytes_per_s"] == 50e9
    assert json.loads(json.dumps(data)) == data


def test_a_part_of_no_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"llama-3\.1-70b"):
        listing_text("models", "llama-3.1-70bb")


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    result = CliRunner().invoke(cli, ["catalog", "devices", "h100", "--json", str(file)])
    assert result.exit_code == 0
    assert "h100-nvl" in result.output
    assert len(json.loads(file.read_text())["devices"]) == 4


def test_json_alone_goes_to_standard_output() -> None:
    result = CliRunner().invoke(cli, ["catalog", "clusters", "--json", "-"])
    names = [cluster["name"] for cluster in json.loads(result.stdout)["clusters"]]
    assert names == list(catalog.names("clusters"))
