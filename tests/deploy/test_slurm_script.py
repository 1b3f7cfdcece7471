"""The Slurm script, run with programs of Slurm's and ours that say what they were asked to do."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "slurm.sh"

# `srun` runs its command here, `ray start` waits, `dream` waits for SIGTERM or ends by itself with status $ENDS.
PROGRAMS = {
    "scontrol": 'if [ "$1" = show ]; then printf "n1\\nn2\\nn3\\n"; else echo "scontrol $*" >>"$CALLS"; fi',
    "hostname": 'echo "10.1.2.3 172.17.0.1"',
    "srun": """
        node=all
        while :; do
          case "$1" in --nodelist=*) node=${1#--nodelist=};; -*) ;; *) break;; esac
          shift
        done
        echo "$node: $*" >>"$CALLS"
        [ "$1" = rm ] || exec "$@"
    """,
    "ray": """
        if [ "$1" = health-check ]; then exit "$UNHEALTHY"; fi
        test -n "$RAY_AUTH_TOKEN" || exit 9
        trap 'echo "ray ended" >>"$CALLS"; exit 0' TERM
        echo "ray runs" >>"$CALLS"
        while :; do sleep 0.05; done
    """,
    "sleep": 'exec /bin/sleep "$(if [ "$1" = 2 ]; then echo 0; else echo "$1"; fi)"',
    "dream": """
        echo "dream $*" >>"$CALLS"
        until [ "$(grep -c "ray runs" "$CALLS")" = 3 ]; do sleep 0.05; done
        if [ -n "$ENDS" ]; then exit "$ENDS"; fi
        trap 'echo "dream committed" >>"$CALLS"; exit 130' TERM
        echo "dream runs" >>"$CALLS"
        while :; do sleep 0.05; done
    """,
}


class Job:
    """The script with stand-ins for what it calls, as Slurm would start it."""

    def __init__(self, folder: Path, arguments: list[str], *, ends: str = "", unhealthy: str = "0") -> None:
        self.calls_file = folder / "calls"
        self.calls_file.touch()
        for name, body in PROGRAMS.items():
            (folder / name).write_text(f"#!/bin/bash\n{body}\n")
            (folder / name).chmod(0o755)
        (folder / "bin").mkdir()
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "CALLS": str(self.calls_file),
            "ENDS": ends,
            "UNHEALTHY": unhealthy,
            "DREAM_VENV": str(folder),
            "SLURM_JOB_ID": "4711",
            "SLURM_SUBMIT_DIR": str(folder),
            "SLURM_JOB_NODELIST": "n[1-3]",
            "SLURM_MEM_PER_NODE": "32768",
            "SLURM_CPUS_PER_TASK": "16",
        }
        self.process = subprocess.Popen(
            ["bash", str(SCRIPT), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_heed_interrupts,
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + 300
        while line not in self.calls:
            assert time.monotonic() < deadline, self.calls
            assert self.process.poll() is None, self.calls
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=300)
        return self.process.returncode, output

    def close(self) -> None:
        """Ends what a failed test has left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _heed_interrupts() -> None:
    """As under Slurm: bash cannot trap what was ignored when it started, as under nohup or in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts jobs, and ends what is left of them."""
    jobs: list[Job] = []

    def begin(arguments: list[str], **settings: str) -> Job:
        jobs.append(Job(tmp_path, arguments, **settings))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


TRAIN = "dream train leduc-dream seed=7 --run-dir /shared/run --runtime ray --address 10.1.2.3:29422 --resume"
ARGUMENTS = ["leduc-dream", "/shared/run", "seed=7"]


def test_head_on_the_first_node_workers_on_the_others_and_dream_at_the_end(start: Start) -> None:
    job = start(ARGUMENTS, ends="0")
    assert job.end()[0] == 0
    started = {call.split(": ")[0]: call for call in job.calls if "ray start" in call}
    assert set(started) == {"n1", "n2", "n3"}
    assert "--head" in started["n1"]
    assert "--port=29422" in started["n1"]
    assert "--num-cpus=15" in started["n1"]
    for node in ("n2", "n3"):
        assert "--address=10.1.2.3:29422" in started[node]
        assert "--num-cpus=16" in started[node]
    assert all("--object-store-memory=10307921510" in call for call in started.values())
    assert TRAIN in job.calls
    assert job.calls[-1] == "all: rm -rf /tmp/ray-4711"
    assert job.calls.count("ray ended") == 3
    assert not any(call.startswith("scontrol requeue") for call in job.calls)


def test_the_limit_commits_cleans_up_and_queues_again(start: Start) -> None:
    job = start(ARGUMENTS)
    job.wait_for("dream runs")
    job.process.send_signal(signal.SIGTERM)
    status, output = job.end()
    assert status == 130
    assert "dream ended with status 130" in output
    assert job.calls[-1] == "scontrol requeue 4711"
    assert job.calls.index("dream committed") < job.calls.index("ray ended")  # the cluster outlives the commit
    assert job.calls.count("ray ended") == 3


def test_an_interrupt_commits_and_does_not_queue_again(start: Start) -> None:
    job = start(ARGUMENTS)
    job.wait_for("dream runs")
    job.process.send_signal(signal.SIGINT)
    assert job.end()[0] == 130
    assert "dream committed" in job.calls
    assert job.calls[-1] == "all: rm -rf /tmp/ray-4711"


@pytest.mark.parametrize("status", ["1", "2"])
def test_a_failure_is_the_status_of_the_job(start: Start, status: str) -> None:
    job = start(ARGUMENTS, ends=status)
    assert job.end()[0] == int(status)
    assert not any(call.startswith("scontrol requeue") for call in job.calls)
    assert job.calls.count("ray ended") == 3


def test_a_head_that_does_not_answer_ends_the_job(start: Start) -> None:
    job = start(ARGUMENTS, unhealthy="1")
    status, output = job.end()
    assert status == 1
    assert "does not answer" in output
    assert not any(call.startswith("dream") for call in job.calls)
    assert "ray ended" in job.calls


def test_without_a_run_folder_it_says_how_it_is_used(start: Start) -> None:
    status, output = start(["leduc-dream"]).end()
    assert status == 2
    assert "usage: sbatch deploy/slurm.sh" in output


def test_slurm_is_told_to_signal_the_script_and_to_queue_again() -> None:
    text = SCRIPT.read_text()
    directives = re.findall(r"^#SBATCH (--[\w-]+)(?:=(\S+))?$", text, re.MULTILINE)
    assert {name: value for name, value in directives if name in ("--signal", "--requeue", "--no-kill")} == {
        "--signal": "B:TERM@300",
        "--requeue": "",
        "--no-kill": "",
    }
    before = text[: text.index("set -euo pipefail")]
    assert all(line.startswith("#") for line in before.splitlines())  # sbatch stops reading at the first command


def test_the_script_is_sound() -> None:
    assert os.access(SCRIPT, os.X_OK)
    assert subprocess.run(["bash", "-n", str(SCRIPT)]).returncode == 0
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", str(SCRIPT)]).returncode == 0
