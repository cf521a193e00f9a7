#!/bin/sh
# Claude Code as a worker: each turn of the agent `claude-code` is one `claude -p` that has the mesh's tools.
# Start it in the folder that it is to work in; the mesh runs (`make up`), `claude` is logged in:
#     deploy/examples/claude-code-worker.sh
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
data=${HOPLINE_DATA:-$HOME/.hopline}
token=$("$examples/agent.sh" claude-code)
# What `-p` may use without asking is listed; it finds the mesh in the file that each turn gets.
exec "$examples/../../.venv/bin/hopline" attach --agent claude-code --data "$data" --token-file "$token" -- sh -c '
  exec claude -p --append-system-prompt "$(cat "$HOPLINE_SYSTEM_FILE")" \
    --mcp-config "$HOPLINE_MCP_CONFIG" --strict-mcp-config --allowedTools "mcp__hopline__*"'
