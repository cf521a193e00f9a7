#!/bin/sh
# A specialist that dies in the middle of its work. Its lead is told so at once.
#
# hopline attach --agent builder -- deploy/examples/crew/builder.sh
echo "building …"
kill -KILL $$
