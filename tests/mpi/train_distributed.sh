#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# `train_distributed.sh FOLDER PROGRAM MPIRUN...`: a few steps of examples/train_distributed in the
# three ways that it can be started. Two threads and two processes give the same bits, and one
# process alone nearly the same losses.
folder=$1
program=$2
shift 2
images=/usr/share/datasets/fashion-mnist
if ! test -d "$images"; then
  echo "skipped: needs $images (Debian: dataset-fashion-mnist)"
  exit 0
fi

run() { # NAME COMMAND...
  name=$1
  shift
  "$@" --dtype f64 --batch-size 16 --max-steps 6 --metrics "$folder/$name.csv" || exit 1
  cut -d , -f 1-3 "$folder/$name.csv" >"$folder/$name.losses"
}

mkdir -p "$folder" || exit 1
run alone "$program"
run threads "$program" --devices 2
run processes "$@" "$program"
cmp "$folder/threads.losses" "$folder/processes.losses" || exit 1
paste -d , "$folder/alone.losses" "$folder/threads.losses" | awk -F , '
  NR > 1 {
    off = ($3 - $6) / $3
    if (off < 0) off = -off
    if ($1 != $4 || !(off < 1e-9)) { print "step " $1 ": " $3 " and " $6; wrong = 1 }
    ++steps
  }
  END { if (steps != 6) { print "expected 6 steps, got " steps; wrong = 1 }; exit wrong }'
