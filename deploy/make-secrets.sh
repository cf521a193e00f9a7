#!/bin/sh
# Makes what the parts of a mesh prove themselves with, a file each, for their owner alone; what is there stays.
#   deploy/make-secrets.sh [FOLDER]     (default: secrets, beside this script)
set -eu
umask 077
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"

random() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; }
make() { test -s "$folder/$1" || printf '%s\n' "$2" > "$folder/$1"; }

for service in quota relay gateway console; do
  make "$service.token" "hpl_s_$(random)"
done
make admin.token "hpl_u_$(random)"
make console.keys "$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')"
make postgres.password "$(random)"

# What compose puts into its file; settings that were added to it stay.
env=$(dirname "$0")/.env
test "$folder" != "$(dirname "$0")/secrets" || test -s "$env" || cat > "$env" <<END
HOPLINE_UID=$(id -u)
HOPLINE_GID=$(id -g)
POSTGRES_PASSWORD=$(cat "$folder/postgres.password")
END
echo "$folder"
