#!/bin/sh
# Codex CLI as a caller: gives it the mesh's tools, as the agent `me`. The mesh runs (`make up`):
#     deploy/examples/codex-caller.sh
# Then type in `codex`: ask the agent codex whether this plan is sound
# It writes into ~/.codex/config.toml what could be written there by hand:
#     [mcp_servers.hopline]
#     command = "/path/to/hopline/.venv/bin/hopline"
#     args = ["mcp", "--data", "/home/you/.hopline", "--token-file", "/home/you/.hopline/me.token"]
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
data=${HOPLINE_DATA:-$HOME/.hopline}
token=$("$examples/agent.sh" me)
exec codex mcp add hopline -- "$examples/../../.venv/bin/hopline" mcp --data "$data" --token-file "$token"
