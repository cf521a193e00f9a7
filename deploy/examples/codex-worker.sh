#!/bin/sh
# Codex CLI as a worker: each turn of the agent `codex` is one `codex exec` that has the mesh's tools.
# Start it in the folder that it is to work in; the mesh runs (`make up`), `codex` is logged in:
#     deploy/examples/codex-worker.sh
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
data=${HOPLINE_DATA:-$HOME/.hopline}
token=$("$examples/agent.sh" codex)
PATH=$(cd "$examples/../../.venv/bin" && pwd):$PATH
# Codex passes on to a server only the variables that are named, and `exec` uses no tool that would have to ask.
exec hopline attach --agent codex --data "$data" --token-file "$token" -- \
  sh -c '{ cat "$HOPLINE_SYSTEM_FILE"; echo; cat; } | "$@"' turn codex exec --skip-git-repo-check \
  -c 'mcp_servers.hopline.command="hopline"' -c 'mcp_servers.hopline.args=["mcp"]' \
  -c 'mcp_servers.hopline.env_vars=["HOPLINE_SOCKET", "TRACEPARENT"]' \
  -c 'mcp_servers.hopline.default_tools_approval_mode="approve"' -
