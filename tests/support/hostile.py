"""What a command under `hopline attach --user` can read that it should not: it looks everywhere.

A shell with the tools that every system has, since the user it runs as may not reach our Python.
"""

from __future__ import annotations

import re
from typing import Final

TOKEN: Final = re.compile(r"hpl_[a-z]_[A-Za-z0-9_-]{43}")

# Prints a line for each thing it got hold of, and then that it has looked.
SCRIPT: Final = r"""
me=$(id -u)
token='hpl_[a-z]_[A-Za-z0-9_-]{43}'

# Every process: what it was started with, what it holds open, its memory.
grep -aoEH "$token" /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | sed 's/^/token in /'
for process in /proc/[0-9]*; do
  [ -O "$process" ] && continue
  for what in mem environ auxv; do
    (: < "$process/$what") 2>/dev/null && echo "opened $process/$what"
  done
  [ -r "$process/fd" ] && ls "$process/fd" > /dev/null 2>&1 && echo "listed $process/fd"
done

# What was inherited.
echo "open here:" && ls /proc/$$/fd && echo "."
env | grep -aoE "$token" | sed 's/^/token in the environment: /'

# Files that were touched while the mesh ran, wherever this user gets.
find "${HOPLINE_SOCKET%/*/*}" /tmp /var/tmp /run /dev/shm /root /home "$HOME" "$DATA" . -xdev -maxdepth 6 \
  \( -name .venv -o -name .uv -o -name .git -o -name wt \) -prune -o \
  -type f -size -2000k -mmin -10 -readable -exec grep -aoEH "$token" {} + 2>/dev/null | sed 's/^/token in /'
for file in "$DATA" "$DATA/admin.token" "$DATA/registry.db" "$DATA/relay.db" "$SECRET"; do
  (: < "$file") 2>/dev/null && echo "opened $file"
  ls "$file"/ > /dev/null 2>&1 && echo "listed $file"
  [ -w "$file" ] && echo "may write $file"
done

# More rights than it was given.
grep -q '^NoNewPrivs:.1$' /proc/self/status || echo "may gain rights"
grep -E '^Cap(Eff|Prm|Inh|Amb):' /proc/self/status | grep -qv '0000000000000000$' && echo "has capabilities"
(kill -0 $PPID) 2>/dev/null && echo "may signal the daemon"
echo "looked as $(id -un)"
"""


_STANDARD: Final = ["open here:", "0", "1", "2", "."]


def found(answer: str) -> list[str]:
    """Return what it got hold of, less that it looked, and that it has an input, an output and an error."""
    *lines, last = answer.splitlines()
    assert last.startswith("looked as "), answer
    start = lines.index(_STANDARD[0])
    if lines[start : start + len(_STANDARD)] == _STANDARD:
        del lines[start : start + len(_STANDARD)]
    return lines
