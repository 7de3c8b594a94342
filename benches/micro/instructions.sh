#!/usr/bin/env bash
# Counts the instructions that the fixed replay takes (replay.rs) and compares them with those in instructions.txt: the same on
# a busy machine as on a quiet one, but for some hundredths of a percent, and another compiler gives another count.
#
#   benches/micro/instructions.sh          shows the change
#   benches/micro/instructions.sh keep     writes the new counts to instructions.txt
set -euo pipefail
folder=$(dirname "$(readlink -f "$0")")
cd "$folder/../.."
kept=$folder/instructions.txt
events=10000

replay=$(cargo bench --bench replay --no-run --message-format=json ${LOCKED:-} 2>/dev/null |
  sed -n 's/.*"name":"replay".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$replay" ] || { echo 'the replay was not built: run `cargo bench --bench replay --no-run`' >&2; exit 1; }

count() { # count SCENARIO
  valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*counted*' "$replay" "$1" 2>&1 |
    sed -n 's/^==[0-9]*== Collected : \([0-9]*\)$/\1/p'
}

before() { sed -n "s/^$1 //p" "$kept" 2>/dev/null; }

printf '%-20s %16s %16s %9s\n' 'instructions' 'kept, an event' 'now, an event' change
counts=
for scenario in postgres_messages postgres_rows mysql_rows; do
  now=$(count "$scenario")
  [ -n "$now" ] && [ "$now" -gt 0 ] || { echo "valgrind counted nothing of $scenario" >&2; exit 1; }
  counts+="$scenario $((now / events))"$'\n'
  awk -v name="$scenario" -v now="$((now / events))" -v before="$(before "$scenario")" 'BEGIN {
    change = before > 0 ? sprintf("%+.1f %%", (now - before) * 100 / before) : "new"
    printf "%-20s %16s %16d %9s\n", name, before, now, change }'
done
if [ "${1:-}" = keep ]; then
  { echo "# Instructions an event of the fixed replay in replay.rs, counted by instructions.sh with $(rustc --version | cut -d' ' -f1,2)."
    printf '%s' "$counts"; } >"$kept"
fi
