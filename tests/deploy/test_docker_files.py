"""Dockerfiles, build context, entry point and compose file, as far as they can be checked without Docker."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"
DOCKERFILES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCKER.glob("Dockerfile*"))}
PINNED = re.compile(r"[\w./-]+:(?!latest\b)[\w.-]*\d[\w.-]*")


# --- Dockerfiles -------------------------------------------------------------------------------------------


@dataclass
class Stage:
    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, keyword: str) -> list[str]:
        return [value for word, value in self.instructions if word == keyword]


def stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile: instructions with their continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: list[Stage] = []
    for instruction in re.sub(r"\s*\\\n\s*", " ", "\n".join(lines)).splitlines():
        keyword, _, value = instruction.partition(" ")
        if keyword == "FROM":
            base, _, name = value.partition(" AS ")
            found.append(Stage(base, name.strip()))
        else:
            found[-1].instructions.append((keyword, value.strip()))
    return found


def ignored(name: str, patterns: list[str]) -> bool:
    """Whether .dockerignore keeps a path out: the last pattern that matches it, or a parent of it, decides."""
    out = False
    parents = [name, *(str(parent) for parent in Path(name).parents if str(parent) != ".")]
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        if any(fnmatch(parent, bare) or fnmatch(f"/{parent}", bare.replace("**/", "*/")) for parent in parents):
            out = not pattern.startswith("!")
    return out


def faults(text: str) -> list[str]:
    """What is wrong with a Dockerfile: bases without a fixed tag, sources that are not there, a root user."""
    found: list[str] = []
    seen: list[str] = []
    ignore = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    for stage in stages(text):
        if stage.base not in seen and not PINNED.fullmatch(stage.base):
            found.append(f"base {stage.base}")
        for value in stage.values("COPY"):
            words = shlex.split(value)
            origin = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
            *sources, _ = [word for word in words if not word.startswith("--")]
            if origin is not None:
                found += [] if origin in seen else [f"stage {origin}"]
            else:
                found += [f"source {s}" for s in sources if not (REPOSITORY / s).exists() or ignored(s, ignore)]
        seen.append(stage.name)
    last = stages(text)[-1]
    users = last.values("USER")
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        found.append("user")
    after = [word for word, _ in last.instructions[[w for w, _ in last.instructions].index("USER") :]] if users else []
    return found + [f"{word} after USER" for word in after if word in ("RUN", "COPY", "ADD")]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_bases_sources_and_user(name: str) -> None:
    assert faults(DOCKERFILES[name]) == []


def test_there_are_two_dockerfiles() -> None:
    assert set(DOCKERFILES) == {"Dockerfile", "Dockerfile.cuda"}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("FROM python:3.11.14-slim-bookworm AS build", "FROM python AS build", "base python"),
        ("FROM python:3.11.14-slim-bookworm AS build", "FROM python:latest AS build", "base python:latest"),
        ("COPY buffers ", "COPY bufers ", "source bufers"),
        ("COPY buffers ", "COPY tests ", "source tests"),
        ("--from=build", "--from=built", "stage built"),
        ("USER 1000:1000", "USER root", "user"),
        ("USER 1000:1000", "USER 1000:1000\nRUN pip install more", "RUN after USER"),
    ],
)
def test_a_wrong_dockerfile_is_noticed(old: str, new: str, fault: str) -> None:
    text = DOCKERFILES["Dockerfile"]
    assert old in text
    assert faults(text.replace(old, new)) == [fault]


def test_the_two_differ_in_torch_and_nvidia_only() -> None:
    cpu, cuda = (
        [(s.base, s.name, k, v) for s in stages(DOCKERFILES[name]) for k, v in s.instructions]
        for name in ("Dockerfile", "Dockerfile.cuda")
    )
    assert len(cpu) == len(cuda)
    differing = [(a[3], b[3]) for a, b in zip(cpu, cuda, strict=True) if a != b]
    assert len(differing) == 2
    (cpu_torch, cuda_torch), (cpu_env, cuda_env) = differing
    assert "download.pytorch.org/whl/cpu" in cpu_torch
    assert "--no-deps" in cpu_torch
    assert cuda_torch.split() == ["pip", "install", "-c", "/src/constraints.txt", "torch"]
    assert set(cuda_env.split()) - set(cpu_env.split()) == {
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    }


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dependencies_are_layers_before_the_code(name: str) -> None:
    """A change of code must not install anything anew: no stage but the one that makes the wheel reads code."""
    for stage in stages(DOCKERFILES[name]):
        code = [v for v in stage.values("COPY") if v.split()[0] in ("buffers", "actors", "learners", "dream")]
        assert len(code) == (4 if stage.name == "code" else 0)
    (build,) = [stage for stage in stages(DOCKERFILES[name]) if stage.name == "build"]
    assert all("-c /src/constraints.txt" in run for run in build.values("RUN") if "pip install" in run)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_packages_of_the_wheel_are_copied(name: str) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packages = {p for p in project["tool"]["setuptools"]["packages"]["find"]["include"] if "*" not in p}
    (code,) = [stage for stage in stages(DOCKERFILES[name]) if stage.name == "code"]
    assert {value.split()[0] for value in code.values("COPY")} == packages


def test_the_build_context_is_small() -> None:
    patterns = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    for name in (
        ".git/config",
        "runs/first/metrics.jsonl",
        ".venv/bin/python",
        "tests/unit/test_docs.py",
        "docs/usage.md",
    ):
        assert ignored(name, patterns), name
    for name in ("dream/cli.py", "constraints.txt", "docker/entrypoint.sh", "dream/presets/leduc-dream.yaml"):
        assert not ignored(name, patterns), name
    assert ignored("dream/__pycache__/cli.cpython-311.pyc", patterns)


def test_requirements_are_pinned_and_agree_with_the_constraints() -> None:
    lines = [line for line in (DOCKER / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    pins = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if "==" in line)
    named = [re.sub(r"\[.*", "", line) for line in lines if "==" not in line]
    assert {"ray", "s3fs", "boto3"} == set(named) <= set(pins)
    assert "torch" in pins
    ours = dict(line.split("==") for line in lines if "==" in line)
    assert [name for name, version in ours.items() if pins.get(name, version) != version] == []


# --- the entry point ---------------------------------------------------------------------------------------


def entered(tmp_path: Path, *arguments: str) -> list[str]:
    """What the entry point runs, by programs of those names that print their own name and arguments."""
    for name in ("dream", "ray", "tensorboard"):
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", str(DOCKER / "entrypoint.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "run"),
    [
        (["train", "leduc-dream", "game=a b"], ["dream", "train", "leduc-dream", "game=a b"]),
        (["dream", "train", "leduc-dream"], ["dream", "train", "leduc-dream"]),
        (["--help"], ["dream", "--help"]),
        ([], ["dream"]),
        (["eval", "/runs/a"], ["dream", "eval", "/runs/a"]),
        (["ray", "start", "--head"], ["ray", "start", "--head"]),
        (["tensorboard", "--logdir", "/runs"], ["tensorboard", "--logdir", "/runs"]),
        (["bash", "-c", "exec dream train x"], ["dream", "train", "x"]),
    ],
)
def test_the_entry_point_runs_dream_unless_told_otherwise(tmp_path: Path, arguments: list[str], run: list[str]) -> None:
    assert entered(tmp_path, *arguments) == run


# --- compose -----------------------------------------------------------------------------------------------

COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
KEYS = {
    "image", "build", "command", "ports", "volumes", "networks", "ulimits", "logging", "shm_size", "mem_limit", "cpus",
    "restart", "healthcheck", "depends_on", "environment", "stop_grace_period",
}  # fmt: skip


def size(text: str) -> int:
    """Bytes of compose's `2g` or `512m`, where variables stand with their defaults."""
    number, unit = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)([mg])\}?", text).groups()  # type: ignore[union-attr]
    return int(number) * {"m": 1 << 20, "g": 1 << 30}[unit]


def words(service: str) -> str:
    command = SERVICES[service].get("command", "")
    return command if isinstance(command, str) else command[-1]


def flag(text: str, name: str) -> str:
    return re.search(rf"--{name}=(\S+)", text).group(1)  # type: ignore[union-attr]


def test_services_and_their_keys() -> None:
    assert set(SERVICES) == {"head", "worker", "train", "tensorboard"}
    for name, service in SERVICES.items():
        assert set(service) <= KEYS, name
        assert service["image"] == SERVICES["head"]["image"]
        assert "runs:/runs" in service["volumes"], name
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for other, needs in service.get("depends_on", {}).items():
            assert needs == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[other]
    assert set(COMPOSE["volumes"]) == {"runs"}


def test_one_build_makes_the_image_of_all() -> None:
    (service,) = [service for service in SERVICES.values() if "build" in service]
    assert (DOCKER / service["build"]["context"]).resolve() == REPOSITORY
    assert (REPOSITORY / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", ["head", "worker", "train"])
def test_the_object_store_fits_shm_and_shm_fits_the_memory(name: str) -> None:
    service = SERVICES[name]
    assert int(flag(words(name), "object-store-memory")) <= size(service["shm_size"])
    assert 2 * size(service["shm_size"]) <= size(service["mem_limit"])


def test_only_workers_do_work() -> None:
    assert [flag(words(name), "num-cpus") for name in ("head", "train")] == ["0", "0"]
    assert flag(words("worker"), "num-cpus") == SERVICES["worker"]["cpus"]


def test_ports_are_for_this_machine_and_agree() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in published)
    inside = {int(port.rpartition(":")[2]) for port in published}
    head = words("head")
    assert {int(flag(head, "dashboard-port")), int(flag(head, "ray-client-server-port"))} == inside - {6006}
    assert "--port 6006" in words("tensorboard")
    for name in ("worker", "train"):
        assert flag(words(name), "address") == f"head:{flag(head, 'port')}"
    assert SERVICES["head"]["healthcheck"]["test"][-1] == f"localhost:{flag(head, 'port')}"


def test_a_stop_leaves_time_for_the_commit() -> None:
    assert SERVICES["train"]["stop_grace_period"] == "10m"
    assert words("train").split("&&")[-1].split()[0] == "exec"  # so that SIGTERM reaches dream


def test_variables_have_defaults_and_are_explained() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    variables = set(re.findall(r"(?<!\$)\$\{(\w+):-[^}]+\}", text))
    assert not re.search(r"(?<!\$)\$\{\w+\}", text)
    readme = (DOCKER / "README.md").read_text()
    assert [name for name in sorted(variables) if f"`{name}`" not in readme] == []


def test_scripts_are_sound() -> None:
    for script in sorted(DOCKER.glob("*.sh")):
        assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
        assert os.access(script, os.X_OK), script
        if shutil.which("shellcheck"):
            assert subprocess.run(["shellcheck", str(script)]).returncode == 0
