"""The Kubernetes manifests: fields that the operator knows, sizes that fit, values that kustomizations really set."""

import copy
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
DOCKERFILE = KUBERNETES.parents[1] / "docker" / "Dockerfile"
MANIFESTS = ["shared/settings.yaml", "shared/volume.yaml", "shared/tensorboard.yaml", "job/rayjob.yaml"]
MANIFESTS += ["cluster/raycluster.yaml"]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")))


def quantity(text: str) -> float:
    """A Kubernetes quantity in bytes, or CPUs."""
    number, unit = re.fullmatch(r"(\d+(?:\.\d+)?)(m|Mi|Gi|Ti)?", text).groups()  # type: ignore[union-attr]
    return float(number) * {None: 1, "m": 1e-3, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}[unit]


# --- the fields in use, as the APIs define them; unknown ones are refused ---------------------------------------


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class Metadata(Strict):
    name: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")
    labels: dict[str, str] = {}


class Resources(Strict):
    requests: dict[str, str]
    limits: dict[str, str]

    @model_validator(mode="after")
    def _memory_is_guaranteed(self) -> "Resources":
        assert self.requests["memory"] == self.limits["memory"], "requests and limits of memory differ"
        assert quantity(self.requests["cpu"]) <= quantity(self.limits["cpu"]), "more CPU is requested than allowed"
        return self


class Port(Strict):
    name: str = Field(pattern=r"^[a-z0-9-]{1,15}$")
    container_port: int


class Variable(Strict):
    name: str
    value: str


class Mount(Strict):
    name: str
    mount_path: str = Field(pattern="^/")
    read_only: bool = False


class Capabilities(Strict):
    drop: list[str]


class ContainerSecurity(Strict):
    allow_privilege_escalation: bool
    capabilities: Capabilities


class Get(Strict):
    path: str
    port: str


class Probe(Strict):
    http_get: Get
    period_seconds: int
    timeout_seconds: int


class Command(Strict):
    command: list[str]


class Hook(Strict):
    exec: Command


class Lifecycle(Strict):
    pre_stop: Hook


class Container(Strict):
    name: str
    image: str
    args: list[str] = []
    ports: list[Port] = []
    env: list[Variable] = []
    resources: Resources
    security_context: ContainerSecurity
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    volume_mounts: list[Mount]


class Claim(Strict):
    claim_name: str
    read_only: bool = False


class EmptyDirectory(Strict):
    medium: str
    size_limit: str


class Volume(Strict):
    name: str
    persistent_volume_claim: Claim | None = None
    empty_dir: EmptyDirectory | None = None


class PodSecurity(Strict):
    run_as_non_root: bool
    run_as_user: int
    run_as_group: int
    fs_group: int


class Toleration(Strict):
    key: str
    operator: str
    effect: str


class PodSpec(Strict):
    termination_grace_period_seconds: int = 30
    automount_service_account_token: bool = True
    security_context: PodSecurity
    tolerations: list[Toleration] = []
    containers: list[Container] = Field(min_length=1)
    volumes: list[Volume]

    @model_validator(mode="after")
    def _mounts_exist(self) -> "PodSpec":
        mounted = {mount.name for container in self.containers for mount in container.volume_mounts}
        assert mounted == {volume.name for volume in self.volumes}, "mounts and volumes differ"
        return self


class Template(Strict):
    metadata: Metadata = Metadata()
    spec: PodSpec


class Group(Strict):
    ray_start_params: dict[str, str]  # numbers are strings here, too
    template: Template

    @model_validator(mode="after")
    def _object_store_fits(self) -> "Group":
        (shm,) = [v.empty_dir.size_limit for v in self.template.spec.volumes if v.empty_dir]
        (container,) = self.template.spec.containers
        assert [m.mount_path for m in container.volume_mounts if m.name == "shm"] == ["/dev/shm"], "no shared memory"
        assert int(self.ray_start_params["object-store-memory"]) <= quantity(shm), "the object store does not fit shm"
        memory = quantity(container.resources.limits["memory"])
        assert 2 * quantity(shm) <= memory, "shared memory takes more than half of the memory"
        return self


class WorkerGroup(Group):
    group_name: str
    replicas: int
    min_replicas: int
    max_replicas: int

    @model_validator(mode="after")
    def _replicas_in_order(self) -> "WorkerGroup":
        assert 0 <= self.min_replicas <= self.replicas <= self.max_replicas, "replicas are out of range"
        return self


class Autoscaler(Strict):
    idle_timeout_seconds: int
    resources: Resources


class ClusterSpec(Strict):
    ray_version: str
    enable_in_tree_autoscaling: bool
    autoscaler_options: Autoscaler
    head_group_spec: Group
    worker_group_specs: list[WorkerGroup]


class JobSpec(Strict):
    entrypoint: str
    backoff_limit: int = Field(ge=1)
    shutdown_after_job_finishes: bool
    ttl_seconds_after_finished: int
    ray_cluster_spec: ClusterSpec


class Selector(Strict):
    match_labels: dict[str, str]


class DeploymentSpec(Strict):
    replicas: int
    selector: Selector
    template: Template


class ServicePort(Strict):
    name: str
    port: int
    target_port: str


class ServiceSpec(Strict):
    selector: dict[str, str]
    ports: list[ServicePort]


class ClaimSpec(Strict):
    access_modes: list[str]
    storage_class_name: str | None = None
    resources: dict[str, dict[str, str]]


SPECS: dict[tuple[str, str], type[Strict] | None] = {
    ("ray.io/v1", "RayJob"): JobSpec,
    ("ray.io/v1", "RayCluster"): ClusterSpec,
    ("apps/v1", "Deployment"): DeploymentSpec,
    ("v1", "Service"): ServiceSpec,
    ("v1", "PersistentVolumeClaim"): ClaimSpec,
    ("v1", "ConfigMap"): None,
}


def checked(document: dict[str, Any]) -> Any:
    """The spec of a manifest; raises where a field is unknown or values contradict each other."""
    kind = SPECS[document["apiVersion"], document["kind"]]
    Metadata.model_validate(document["metadata"])
    assert set(document) == {"apiVersion", "kind", "metadata", "spec" if kind else "data"}
    return kind.model_validate(document["spec"]) if kind else document["data"]


# --- manifests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_well_formed(name: str) -> None:
    for document in documents(name):
        checked(document)


def test_all_files_are_looked_at() -> None:
    rest = {"kustomization.yaml", "learners.yaml"}
    found = {str(p.relative_to(KUBERNETES)) for p in KUBERNETES.rglob("*") if p.is_file() and p.name not in rest}
    assert found == set(MANIFESTS)


def spoiled(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(documents("job/rayjob.yaml")[0])
    *parents, last = path.split(".")
    at: Any = document["spec"]
    for key in parents:
        at = at[int(key) if key.isdigit() else key]
    at[last] = value
    return document


HEAD, WORKER = "rayClusterSpec.headGroupSpec", "rayClusterSpec.workerGroupSpecs.0"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("entryPoint", "dream", "Extra inputs"),
        ("backoffLimit", 0, "greater than or equal to 1"),
        (f"{HEAD}.rayStartParams.num-cpus", 0, "valid string"),
        (f"{HEAD}.rayStartParams.object-store-memory", "4294967296", "does not fit shm"),
        (f"{WORKER}.maxReplicas", 1, "out of range"),
        (f"{WORKER}.template.spec.containers.0.resources.limits.memory", "8Gi", "memory differ"),
        (f"{WORKER}.template.spec.containers.0.volumeMounts.0.name", "run", "mounts and volumes differ"),
        (f"{WORKER}.template.spec.volumes.1.emptyDir.sizeLimit", "9Gi", "more than half"),
        (f"{WORKER}.template.spec.terminationGracePeriod", 60, "Extra inputs"),
    ],
)
def test_a_wrong_manifest_is_noticed(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        checked(spoiled(path, value))


def cluster_specs() -> Iterator[tuple[str, ClusterSpec]]:
    yield "job", checked(documents("job/rayjob.yaml")[0]).ray_cluster_spec
    yield "cluster", checked(documents("cluster/raycluster.yaml")[0])


def test_job_and_cluster_are_the_same_cluster() -> None:
    (_, job), (_, cluster) = cluster_specs()
    assert job == cluster


def test_the_head_does_no_work_and_has_time_to_commit() -> None:
    for _, spec in cluster_specs():
        head = spec.head_group_spec
        assert head.ray_start_params["num-cpus"] == "0"
        (container,) = head.template.spec.containers
        wait = {v.name: v.value for v in container.env}["RAY_JOB_STOP_WAIT_TIME_S"]
        assert head.template.spec.termination_grace_period_seconds >= int(wait) >= 300
        assert {p.container_port for p in container.ports} == {6379, 8265, 10001}


def test_before_a_head_ends_dream_has_committed(tmp_path: Path) -> None:
    """The hook's command, with programs of those names: one SIGTERM, then it waits until no dream is left."""
    (tmp_path / "pkill").write_text('#!/bin/bash\necho "pkill $*" >>"$CALLS"\n')
    (tmp_path / "pgrep").write_text('#!/bin/bash\necho "pgrep $*" >>"$CALLS"\n[ "$(wc -l <"$CALLS")" -lt 4 ]\n')
    (tmp_path / "sleep").write_text("#!/bin/bash\n")
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    calls = tmp_path / "calls"
    for _, spec in cluster_specs():
        (container,) = spec.head_group_spec.template.spec.containers
        calls.unlink(missing_ok=True)
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls)}
        subprocess.run(container.lifecycle.pre_stop.exec.command, env=environment, check=True, timeout=30)
        assert calls.read_text().splitlines() == ["pkill -TERM -x dream"] + ["pgrep -x dream"] * 3
    assert " procps " in DOCKERFILE.read_text()


def test_every_pod_sees_the_runs_as_the_user_of_the_image() -> None:
    user, group = map(int, re.search(r"^USER (\d+):(\d+)$", DOCKERFILE.read_text(), re.MULTILINE).groups())  # type: ignore[union-attr]
    (claim,) = documents("shared/volume.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    tensorboard = checked(documents("shared/tensorboard.yaml")[0]).template.spec
    pods = [tensorboard]
    for _, spec in cluster_specs():
        pods += [group.template.spec for group in (spec.head_group_spec, *spec.worker_group_specs)]
    for pod in pods:
        security = pod.security_context
        assert (security.run_as_user, security.run_as_group, security.fs_group) == (user, group, group)
        assert [v.persistent_volume_claim.claim_name for v in pod.volumes if v.persistent_volume_claim] == [
            "dream-runs"
        ]
        assert [m.mount_path for m in pod.containers[0].volume_mounts if m.name == "runs"] == ["/runs"]
    assert claim["metadata"]["name"] == "dream-runs"


def test_tensorboard_is_where_its_service_looks() -> None:
    deployment, service = (checked(document) for document in documents("shared/tensorboard.yaml"))
    assert service.selector == deployment.selector.match_labels == deployment.template.metadata.labels
    (container,) = deployment.template.spec.containers
    assert [p.target_port for p in service.ports] == [p.name for p in container.ports] == ["http"]
    assert container.args[container.args.index("--port") + 1] == str(container.ports[0].container_port) == "6006"


def test_versions_agree() -> None:
    constraints = (KUBERNETES.parents[1] / "constraints.txt").read_text()
    for _, spec in cluster_specs():
        assert f"\nray=={spec.ray_version}\n" in constraints


# --- kustomizations ----------------------------------------------------------------------------------------


def reached(document: Any, path: str) -> list[tuple[Any, Any]]:
    """(container, key) of everything that a fieldPath with `*` names."""
    *parents, last = path.split(".")
    places = [document]
    for key in parents:
        places = [
            inner for place in places for inner in (place if key == "*" else [place[key]] if key in place else [])
        ]
    return [(place, last) for place in places if last in place]


def built(folder: str) -> list[dict[str, Any]]:
    """What `kubectl kustomize` makes of resources, replacements and JSON patches, in this order as there."""
    kustomization = documents(f"{folder}/kustomization.yaml")[0]
    assert kustomization["kind"] == "Kustomization"
    assert set(kustomization) <= {"apiVersion", "kind", "resources", "replacements", "patches"}
    resources: list[dict[str, Any]] = []
    for name in kustomization["resources"]:
        relative = str((KUBERNETES / folder / name).resolve().relative_to(KUBERNETES))
        resources += built(relative) if (KUBERNETES / relative).is_dir() else documents(relative)
    for patch in kustomization.get("patches", []):
        for operation in documents(f"{folder}/{patch['path']}")[0]:
            apply(the(resources, patch["target"]), operation)
    for replacement in kustomization.get("replacements", []):
        source = dict(replacement["source"])
        ((place, key),) = reached(the(resources, source), source.pop("fieldPath"))
        for target in replacement["targets"]:
            for path in target["fieldPaths"]:
                found = reached(the(resources, target["select"]), path)
                assert found, f"{path} names nothing"
                for inner, last in found:
                    inner[last] = place[key]
    return resources


def the(resources: list[dict[str, Any]], select: dict[str, str]) -> dict[str, Any]:
    (found,) = [r for r in resources if (r["kind"], r["metadata"]["name"]) == (select["kind"], select["name"])]
    return found


def apply(document: Any, operation: dict[str, Any]) -> None:
    """One operation of a JSON patch."""
    *parents, last = operation["path"].removeprefix("/").split("/")
    for key in parents:
        document = document[int(key) if key.isdigit() else key]
    if isinstance(document, list):
        assert (operation["op"], last) == ("add", "-")
        document.append(operation["value"])
        return
    assert operation["op"] == "replace"
    assert last in document
    document[last] = operation["value"]


def images(resources: Any) -> Iterator[str]:
    if isinstance(resources, dict):
        for key, value in resources.items():
            if key == "containers":
                yield from (container["image"] for container in value)
            else:
                yield from images(value)
    elif isinstance(resources, list):
        for value in resources:
            yield from images(value)


@pytest.mark.parametrize(("folder", "kind"), [("job", "RayJob"), ("cluster", "RayCluster")])
def test_settings_reach_every_container_and_the_run(folder: str, kind: str) -> None:
    resources = built(folder)
    settings = the(resources, {"kind": "ConfigMap", "name": "dream-settings"})["data"]
    for document in resources:
        checked(document)
    assert list(images(resources)) == [settings["image"]] * 3
    ray = the(resources, {"kind": kind, "name": "dream"})
    if kind == "RayJob":
        assert ray["spec"]["entrypoint"] == settings["entrypoint"]


def test_the_gpu_overlay_adds_learners_and_one_image_for_all_of_ray() -> None:
    job = the(built("job-gpu"), {"kind": "RayJob", "name": "dream"})
    spec = checked(job)
    groups = spec.ray_cluster_spec.worker_group_specs
    assert [group.group_name for group in groups] == ["workers", "learners"]
    (learner,) = groups[1].template.spec.containers
    assert learner.resources.requests["nvidia.com/gpu"] == learner.resources.limits["nvidia.com/gpu"] == "1"
    (image,) = set(images(job))
    assert image.endswith("-cuda")
    share = float(re.search(r" runtime\.learner_gpus=(\S+)", spec.entrypoint).group(1))  # type: ignore[union-attr]
    assert "-dream-" in spec.entrypoint  # an algorithm with three networks: both players' and the baseline
    assert 3 * share <= groups[1].min_replicas  # of one GPU each
    settings = documents("shared/settings.yaml")[0]["data"]
    assert image == f"{settings['image']}-cuda"


def test_a_run_that_is_retried_resumes() -> None:
    for folder in ("job", "job-gpu"):
        spec = checked(the(built(folder), {"kind": "RayJob", "name": "dream"}))
        assert spec.backoff_limit > 0
        assert spec.entrypoint.endswith("--runtime ray --resume")
        assert re.search(r"--run-dir /runs/\S", spec.entrypoint)
