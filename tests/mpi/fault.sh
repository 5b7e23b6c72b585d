#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# Starts fault_main on WORLD ranks, of which rank RANK fails as FAULT says, and checks that each of
# the others reports the error that is expected, and that nothing is left running:
#
#   fault.sh FAULT RANK WORLD PROGRAM MPIRUN...
fault=$1 failing=$2 world=$3 program=$4
shift 4

mark=lockstep_fault_${$}_  # no beginning of another one's
output=$(mktemp)
trap 'rm -f "$output"' EXIT
fail() {
  echo "FAILED: $1"
  cat "$output"
  kill -KILL "$launcher" $(pgrep -f "$mark") 2>/dev/null
  exit 1
}

# Only what a test is about is found by waiting, and soon.
export LOCKSTEP_HEARTBEAT_INTERVAL=0.1 LOCKSTEP_HEARTBEAT_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=60
model="" # what is wrong with it
message=""
case $fault in
killed) error="rank $failing has died: its connection was lost" ;;
stopped)
  LOCKSTEP_HEARTBEAT_TIMEOUT=1.5
  error="rank $failing has not answered for"
  ;;
sleeps)
  LOCKSTEP_COLLECTIVE_TIMEOUT=1.5
  error="rank $failing has not come to a collective for"
  ;;
throws) error="rank $failing has failed: it has thrown std::runtime_error: no room in forward" ;;
fewer_batches) error="rank $failing has ended after collective #" ;;
other_call) error="rank [0-9]* is in collective #.* barrier.*all ranks must call the same" ;;
no_message)
  LOCKSTEP_COLLECTIVE_TIMEOUT=1.5
  message="recv of 1000000 x f32 from rank $failing with tag 0: nothing has come for 1.5 s"
  ;;
not_received)
  LOCKSTEP_COLLECTIVE_TIMEOUT=1.5
  message="send of 1000000 x f32 to rank $failing with tag 0: it has not been received for 1.5 s"
  ;;
no_new_group)
  LOCKSTEP_COLLECTIVE_TIMEOUT=1.5
  message="rank $failing has not come to a collective for .*new_group of 1 ranks"
  ;;
killed_no_message | killed_not_received | killed_no_new_group)
  message="rank $failing has died: its connection was lost"
  ;;
other_length | other_length_ends) model='collectives do not match: rank [0-9] sent more bytes than' ;;
second_init) model="a group of $world after: rank 0 cannot watch the others: .*soon" ;;
other_model) model='parameter 0.*is of shape.* on rank 0, but .* on rank [0-9]' ;;
other_dtype) model='parameter 0.* and f32 on rank 0, but .* and f64 on rank [0-9]' ;;
*) fail "no fault is called $fault" ;;
esac
# With a rank that is missing, the collective that waits for it is named too.
[ -n "$error" ] && error="$error.*collective #[0-9]*, all_reduce(avg) of [0-9]* x f32"
error=${error:-$model$message}

reported() {
  count=0
  rank=0
  while [ "$rank" -lt "$world" ]; do
    if [ "$rank" -ne "$failing" ] || [ -n "$model" ]; then
      grep -q "rank $rank got: .*$error" "$output" || return 1
    fi
    rank=$((rank + 1))
  done
}

# MPICH's launcher ends all processes if a signal has ended one, even with -disable-auto-cleanup,
# and tells of it by SIGUSR1 before: a shell makes a status of the signal.
"$@" -n "$world" sh -c 'trap : USR1; "$@"; exit $?' sh \
  "$program" "$fault" "$failing" "$mark" >"$output" 2>&1 &
launcher=$!
# One that is stopped, or sleeps for ever, would stay: no launcher ends it. All others end by
# themselves.
literal=$(printf '%s' "$program" | sed 's/[][\\.*^$+?(){}|]/\\&/g')
running="^$literal $fault $failing $mark"
case $fault in
stopped | sleeps | no_new_group)
  until reported && [ "$(pgrep -c -f "$running")" -le 1 ]; do
    kill -0 "$launcher" 2>/dev/null || break
    sleep 0.1
  done
  pkill -KILL -f "$running"
  ;;
esac
# Its status says nothing: Open MPI's is 0 where it lets the others go on.
wait "$launcher"
reported || fail "not every rank has reported: $error"
# The launcher may have gone before what it has killed.
tries=0
while pgrep -f "$mark" >/dev/null; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || fail "a process is left"
  sleep 0.1
done
grep "rank [0-9]* got: " "$output"
