#!/bin/sh
# Make the agent NAME in the local mesh, unless it is there, and print where its token is: in a file for you alone.
#     deploy/examples/agent.sh NAME
set -eu
name=$1
data=${HOPLINE_DATA:-$HOME/.hopline}
token=$data/$name.token
hopline=$(dirname "$0")/../../.venv/bin/hopline
if [ ! -f "$token" ]; then
  if "$hopline" agent show "$name" --data "$data" >/dev/null 2>&1; then
    "$hopline" token create --agent "$name" --data "$data" --token-file "$token" >&2
  else
    "$hopline" agent create "$name" --data "$data" --token-file "$token" >&2
  fi
fi
echo "$token"
