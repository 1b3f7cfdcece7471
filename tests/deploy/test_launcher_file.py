"""The file of Ray's cluster launcher, against the schema that comes with Ray."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TEXT = (DEPLOY / "ray-cluster.yaml").read_text(encoding="utf-8")
CLUSTER: dict[str, Any] = yaml.safe_load(TEXT)


def schema() -> dict[str, Any]:
    origin = find_spec("ray").origin  # type: ignore[union-attr]
    return json.loads((Path(origin).parent / "autoscaler" / "ray-schema.json").read_text())  # type: ignore[arg-type,no-any-return]


def test_the_schema_of_ray_accepts_it() -> None:
    jsonschema.validate(CLUSTER, schema())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("idle_timeout_minutes: 10", "idle_timeout_minutes: soon"),
        ("max_workers: 34", "maximal_workers: 34"),
        ("pull_before_run: true", "pull: true"),
        ("    resources: {}\n", ""),
    ],
)
def test_the_schema_notices_faults(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(TEXT.replace(old, new)), schema())


def test_the_head_does_no_work_and_workers_come_and_go() -> None:
    types = CLUSTER["available_node_types"]
    assert types[CLUSTER["head_node_type"]]["resources"] == {"CPU": 0}
    assert "--num-cpus=0" in CLUSTER["head_start_ray_commands"][-1]
    assert types["worker"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in types["head"]["node_config"]
    others = [kind for name, kind in types.items() if name != CLUSTER["head_node_type"]]
    assert all(0 <= kind["min_workers"] <= kind["max_workers"] for kind in others)
    assert sum(kind["max_workers"] for kind in others) == CLUSTER["max_workers"]
    assert CLUSTER["idle_timeout_minutes"] > 0
    assert CLUSTER["file_mounts"] == {}


def test_ports_and_image_agree_with_the_other_files() -> None:
    head, worker = CLUSTER["head_start_ray_commands"][-1], CLUSTER["worker_start_ray_commands"][-1]
    (port,) = re.findall(r"--port=(\d+)", head)
    assert f"--address=$RAY_HEAD_IP:{port} " in worker
    assert re.findall(r"--object-manager-port=(\d+)", head) == re.findall(r"--object-manager-port=(\d+)", worker)
    assert (port, *re.findall(r"--dashboard-port=(\d+)", head)) == ("6379", "8265")
    settings = yaml.safe_load((DEPLOY / "kubernetes" / "shared" / "settings.yaml").read_text())
    assert CLUSTER["docker"]["image"] == settings["data"]["image"]
    compose = yaml.safe_load((DEPLOY.parent / "docker" / "compose.yaml").read_text())
    local = re.fullmatch(r"\$\{DREAM_IMAGE:-(\S+)\}", compose["services"]["head"]["image"]).group(1)  # type: ignore[union-attr]
    assert CLUSTER["docker"]["image"].endswith(f"/{local}")
    assert f'version = "{local.partition(":")[2]}"' in (DEPLOY.parent / "pyproject.toml").read_text()
