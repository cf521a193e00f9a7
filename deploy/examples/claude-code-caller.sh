#!/bin/sh
# Claude Code as a caller: gives it the mesh's tools in this folder, as the agent `me`. The mesh runs (`make up`):
#     deploy/examples/claude-code-caller.sh
# Then type in `claude`: ask the agent claude-code whether this plan is sound
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
data=${HOPLINE_DATA:-$HOME/.hopline}
token=$("$examples/agent.sh" me)
exec claude mcp add hopline -- "$examples/../../.venv/bin/hopline" mcp --data "$data" --token-file "$token"
