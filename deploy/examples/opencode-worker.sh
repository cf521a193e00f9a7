#!/bin/sh
# OpenCode as a worker: each turn of the agent `opencode` is one `opencode run` that has the mesh's tools.
# Start it in the folder that it is to work in; the mesh runs (`make up`), `opencode` has a model:
#     deploy/examples/opencode-worker.sh
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
data=${HOPLINE_DATA:-$HOME/.hopline}
token=$("$examples/agent.sh" opencode)
# It finds the mesh in the file that OPENCODE_CONFIG names, which each turn gets.
exec "$examples/../../.venv/bin/hopline" attach --agent opencode --data "$data" --token-file "$token" -- \
  opencode run {prompt}
