#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# Runs a command twice, `losses.sh FILE COMMAND...`: the second time with --bits-only behind it, and
# with the same output, which FILE.1 and FILE.2 keep.
file=$1
shift
"$@" >"$file.1" || { cat "$file.1"; exit 1; }
cat "$file.1"
"$@" --bits-only >"$file.2" || { cat "$file.2"; exit 1; }
cmp "$file.1" "$file.2"
