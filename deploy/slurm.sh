#!/usr/bin/env bash
# A run on a Slurm allocation: a Ray cluster over its nodes, and `dream train` on the first of them.
#   sbatch deploy/slurm.sh PRESET|FILE RUN_DIR [KEY=VALUE...]
# RUN_DIR is on a file system that all nodes see. Five minutes before the time limit, and when the job is preempted, dream
# ends its iteration and commits, and the job queues again; the same command then goes on from the commit.
# `scancel --batch --signal=INT JOB` commits and ends the job for good.
#SBATCH --job-name=dream
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --output=dream-%j.log
set -euo pipefail

if (($# < 2)); then
  echo "usage: sbatch deploy/slurm.sh PRESET|FILE RUN_DIR [KEY=VALUE...]" >&2
  exit 2
fi
config=$1
run_dir=$2
shift 2

# The environment that `make env` made, on a file system that all nodes see.
export PATH="${DREAM_VENV:-$SLURM_SUBMIT_DIR/.venv}/bin:$PATH"

# Jobs and users share nodes: every job has ports, a folder and a token of its own. Ports lie above those that Ray's worker
# processes take by default (10002 to 19999), and these take any that are free.
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_ip=$(hostname --all-ip-addresses | cut -d ' ' -f 1)
port=$((20000 + SLURM_JOB_ID % 6000 * 2))
address="$head_ip:$port"
temporary="/tmp/ray-$SLURM_JOB_ID"
object_store=$((SLURM_MEM_PER_NODE * 1048576 * 3 / 10))
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0

steps=()
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  trap - EXIT
  kill -TERM "${steps[@]}" 2>/dev/null || true
  wait "${steps[@]}" 2>/dev/null || true
  timeout 60 srun --overlap --nodes="${#nodes[@]}" --ntasks-per-node=1 rm -rf "$temporary" || true
}
trap clean_up EXIT

# One step for each node, so that the loss of a node ends its own step only.
start_ray() {
  local node=$1
  shift
  srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" \
    ray start --block --temp-dir="$temporary" --object-store-memory="$object_store" \
    --min-worker-port=0 --max-worker-port=0 "$@" &
  steps+=($!)
}

# One CPU of the first node is left for the driver.
echo "head on ${nodes[0]}, $address"
start_ray "${nodes[0]}" --head --node-ip-address="$head_ip" --port="$port" --ray-client-server-port=$((port + 1)) \
  --include-dashboard=false --num-cpus=$((SLURM_CPUS_PER_TASK - 1))

ready=
for _ in {1..60}; do
  if ray health-check --address "$address" >/dev/null 2>&1; then
    ready=yes
    break
  fi
  sleep 2
done
if [[ -z $ready ]]; then
  echo "the head on $address does not answer" >&2
  exit 1
fi

for node in "${nodes[@]:1}"; do
  start_ray "$node" --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK"
done

dream train "$config" "$@" --run-dir "$run_dir" --runtime ray --address "$address" --resume &
driver=$!

again=
requeue=
trap 'requeue=yes; kill -TERM "$driver" 2>/dev/null && again=yes' TERM
trap 'requeue=; kill -TERM "$driver" 2>/dev/null && again=yes' INT

# A signal ends `wait` before dream has ended.
status=0
wait "$driver" || status=$?
while [[ -n $again ]]; do
  again=
  status=0
  wait "$driver" || status=$?
done
echo "dream ended with status $status"

if [[ -n $requeue && $status -eq 130 ]]; then
  clean_up
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
