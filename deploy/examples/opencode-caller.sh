#!/bin/sh
# OpenCode as a caller: runs it with the mesh's tools, as the agent `me`. The mesh runs (`make up`):
#     deploy/examples/opencode-caller.sh run "Ask the agent opencode whether two plus two is four."
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
export HOPLINE_DATA="${HOPLINE_DATA:-$HOME/.hopline}"
HOPLINE_TOKEN_FILE=$("$examples/agent.sh" me)
PATH=$(cd "$examples/../../.venv/bin" && pwd):$PATH
export HOPLINE_TOKEN_FILE OPENCODE_CONFIG="$examples/opencode.json"
exec opencode "$@"
