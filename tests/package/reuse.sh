#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# `reuse.sh BUILD COMPILER... -o OBJECT -c SOURCE`, a compiler launcher: copies the object that the build
# tree BUILD has of the same source of lockstep::compiled, and compiles what it has none of.
build=$1
shift
for source; do :; done
name=$(basename "$source")
object=$build/CMakeFiles/lockstep_compiled.dir/lockstep_compiled/$name.o
if test -e "$object" && cmp -s "$source" "$build/lockstep_compiled/$name"; then
  while test "$1" != -o; do shift; done
  exec cp "$object" "$2"
fi
exec "$@"
