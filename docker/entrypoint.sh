#!/usr/bin/env bash
# `docker run IMAGE train leduc-dream` is `dream train leduc-dream`; the programs named here are run as they are.
set -euo pipefail
case "${1:-}" in
  dream | ray | tensorboard | python | bash | sh) exec "$@" ;;
  *) exec dream "$@" ;;
esac
