#!/usr/bin/env bash
# Private servers for tests, the demo and development. They touch no server of the host, and need neither Docker nor root.
#
#   tools/servers.sh up     NAME...    start and wait until ready; the first time also fetch and initialise
#   tools/servers.sh down   [NAME...]  stop cleanly; without names, all of them
#   tools/servers.sh kill   NAME...    stop by SIGKILL, as a crash does
#   tools/servers.sh wipe   [NAME...]  kill and delete the data; fetched programs stay
#   tools/servers.sh status            what runs, with pid, ports and memory
#   tools/servers.sh env    [NAME...]  `export TAILPOST_TEST_...` lines, for eval (default: of PostgreSQL, MySQL, MariaDB and Kafka one each that is
#                                      up: the one named without a version, else the newest)
#   tools/servers.sh sql    NAME [client arguments]   a shell as the administrator
#   tools/servers.sh bin    NAME       the folder of the server's programs, fetched if need be
#   tools/servers.sh with   NAME... -- COMMAND        for tests: COMMAND with these servers and their environment. Those that
#                                      are up are used as they are; the others start from nothing and are stopped afterwards
#
# NAME: pg (the newest on this host), pg14, pg15, pg16, pg17, pg18; mysql (9), mysql80; mariadb (10.11), mariadb106, mariadb11 (11.8),
#       mariadb114; kafka. What differs between versions: servers/postgres.sh, servers/mysql.sh.
#       NAME@INSTANCE is one more of its kind with its own data: for a test that restarts, kills or ruins its server.
#
# Environment, for each start (of an instance: PG15_RUIN_OPTS, PG15_RUIN_PORT for pg15@ruin; its OPTS default to the kind's):
#   PG15_OPTS="-c max_slot_wal_keep_size=4MB"   more options of the server      PG15_INITDB_OPTS="--wal-segsize=1"
#   MYSQL_OPTS="--binlog-row-image=MINIMAL"     the same             MYSQL_INITDB_OPTS="--lower-case-table-names=1"
#   PG17_B_STANDBY_OF=pg17@a   the first start copies that server, which must be up, and follows it; `SELECT pg_promote()` ends that
#   KAFKA_OPTS="message.max.bytes=2000000"      more broker settings, key=value
#   PG15_PORT  MYSQL_PORT  KAFKA_PORT  KAFKA_SSL_PORT  KAFKA_SASL_SSL_PORT  KAFKA_SASL_PORT   fixed ports instead of free ones
#   KAFKA_VERSION  KAFKA_HEAP=256m  KAFKA_JIT=c1 (full for benchmarks)
#   TAILPOST_SERVERS   their folder (${TMPDIR:-/tmp}/tailpost-servers-UID)
#   TAILPOST_CACHE     fetched programs (${XDG_CACHE_HOME:-~/.cache}/tailpost)
# Own servers instead (`with` then starts none of the kind): TAILPOST_TEST_PG_URL, TAILPOST_TEST_MYSQL_URL,
# TAILPOST_TEST_MARIADB_URL, TAILPOST_TEST_KAFKA, each with the rest of what `env` prints for it,
# or TAILPOST_SERVERS_BY=compose for those of docker-compose.yml.
# shellcheck disable=SC2119,SC2120 # port and take_port are given labels by the kinds' files
set -euo pipefail
export LC_ALL=C
umask 022
tools=$(dirname "$(readlink -f "$0")")

say() { echo "servers: $*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,/^# shellcheck/p' "$tools/servers.sh" | sed '$d; s/^# \{0,1\}//'; exit 2; }
show_log() { tail -n 12 "$1" >&2; die "$name did not start: $1"; }

# --- who and where -------------------------------------------------------------------------------------------------

# Where we are root, servers run as another user: PostgreSQL refuses root. An existing folder's owner stays that user,
# also when installing PostgreSQL has brought a user `postgres` in the meantime.
prepare() {
  [ "$(uname -s)" = Linux ] || die "private servers need Linux: point TAILPOST_TEST_PG_URL, TAILPOST_TEST_MYSQL_URL," \
    "TAILPOST_TEST_MARIADB_URL, TAILPOST_TEST_KAFKA and their like at servers of yours, or set TAILPOST_SERVERS_BY=compose"
  base=${TAILPOST_SERVERS:-${TMPDIR:-/tmp}/tailpost-servers-$(id -u)}
  mkdir -p "$base"
  base=$(readlink -f "$base")
  user=$(stat -c %U "$base")
  if [ "$(id -u)" = 0 ]; then
    if [ "$user" = root ]; then
      user=$(getent passwd postgres >/dev/null && echo postgres || echo nobody)
      chown "$user" "$base"
    fi
  elif [ ! -O "$base" ]; then
    die "$base belongs to $user: set TAILPOST_SERVERS to a folder of yours"
  fi
  mkdir -p "$base/locks"
  run test -x "$base" || die "user $user cannot enter $base: set TAILPOST_SERVERS to a folder that it can reach"
  # 107 is the longest path of a Unix socket
  [ ${#base} -le 60 ] || die "the path $base is too long for Unix sockets: set TAILPOST_SERVERS to a shorter one"
  cache=${TAILPOST_CACHE:-${XDG_CACHE_HOME:-${HOME:-$base}/.cache}/tailpost}
  if ! enterable "$cache" || ! mkdir -p "$cache" 2>/dev/null; then cache=$base/programs; fi
}

# Becomes a program that the servers' user runs, free of the caller's PostgreSQL settings, in the folder $run_in.
become() {
  local as=()
  [ "$(id -u)" != 0 ] || as=(setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups)
  cd "${run_in:-/}"
  exec "${as[@]}" env -u PGDATA -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE -u PGSERVICE HOME=/ "$@"
}
run() { (become "$@"); }

# Java takes the home folder from the user's entry, which not every user has; $HOME is what was meant.
maven() {
  local log
  log=$(mktemp)
  MAVEN_OPTS="${MAVEN_OPTS:-} -Duser.home=${HOME:-$base}" mvn -q -B "$@" >"$log" 2>&1 || { cat "$log" >&2; rm "$log"; return 1; }
  rm "$log"
}

enterable() { # its nearest parent that exists is what counts
  local d=$1
  while [ ! -e "$d" ]; do d=$(dirname "$d"); done
  run test -x "$d"
}

# --- one server ----------------------------------------------------------------------------------------------------
# servers/KIND.sh holds what differs between kinds, as functions KIND_...:
#   name NAME (resolved)   start (returns when it is ready)   pid (as recorded, alive or not)   signal (for a clean stop)
#   env (export lines)     sql ARGUMENTS...                   bin

kind_of() {
  case $1 in
    pg | pg1[4-9] | pg[2-9][0-9]) echo postgres ;;
    mysql | mysql80 | mariadb | mariadb106 | mariadb11 | mariadb114) echo mysql ;;
    kafka) echo kafka ;;
    *) return 1 ;;
  esac
}

# load NAME: sets name, kind, dir, and the prefixes of its environment variables (own: PG15_RUIN, family: PG15).
load() {
  if ! [[ $1 =~ ^[a-z]+[0-9]*(@[a-z0-9_-]+)?$ ]] || ! kind=$(kind_of "${1%%@*}"); then die "unknown server: $1"; fi
  # shellcheck source=/dev/null
  . "$tools/servers/$kind.sh"
  name=$("${kind}_name" "$1")
  dir=$base/$name
  own=${name//[@-]/_} own=${own^^} family=${name%%@*} family=${family^^}
}

# With fd 9, which no server may inherit: its lock would never end.
lock() { exec 9>"$base/locks/$name"; flock 9; }

# Only if a process has the recorded number and works inside the server's own folder it is ours: numbers are used again.
pid() {
  local p
  p=$("${kind}_pid" 2>/dev/null) && [ -n "$p" ] && ours "$p" && echo "$p"
}
ours() { [[ $(readlink "/proc/$1/cwd") = "$dir"/* ]]; }

option() { local v=${own}_$1 w=${family}_$1; echo "${!v-${!w-}}"; }

# take_port [LABEL]: the port asked for, else that of the last start if it is free, else any free one.
take_port() {
  local label=${1:-} p variable file i
  variable=${own}_${label:+${label^^}_}PORT file=$dir/port${label:+-$label}
  p=${!variable:-}
  if [ -z "$p" ]; then
    exec 8>"$base/locks/ports"; flock 8 # two servers that start at once must not pick the same one
    p=$(cat "$file" 2>/dev/null || echo 0)
    # The threads of a server that was killed can hold it for a moment after its process is gone.
    for ((i = 0; i < 100 && p != 0; i++)); do
      listens "$p" || break
      sleep 0.02
    done
    while [ "$p" = 0 ] || listens "$p"; do
      p=$((20000 + RANDOM % 12000)) # below the range of outgoing connections
      ! grep -qsx "$p" "$base"/*/port* || p=0
    done
  fi
  echo "$p" >"$file"
  exec 8>&-
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port() { cat "$dir/port${1+-$1}"; } # port [LABEL]

up() {
  load "$1"; lock
  local p started
  if p=$(pid); then say "$name is up (pid $p)"; return; fi
  started=${EPOCHREALTIME/./}
  mkdir -p "$dir"
  [ "$(id -u)" != 0 ] || chown "$user" "$dir"
  # shellcheck source=/dev/null
  (. "$tools/servers/tls.sh" && certificates "$base/tls")
  "${kind}_start"
  p=$(pid) || die "$name has no process after its start"
  say "$name is up: port $(port), pid $p, $(((${EPOCHREALTIME/./} - started) / 1000)) ms"
}

down() {
  load "$1"; lock
  local p
  p=$(pid) || return 0
  kill -"$("${kind}_signal")" "$p"
  kill -CONT "$p" # a test may have stopped it
  gone 30 "$p" && return
  say "$name does not stop: killed"
  crash "$p"
}

crash() { # stopped first, so that it starts no child between our look and the kill
  local p=$1 all
  kill -STOP "$p"
  read -ra all <<<"$p $(cat /proc/"$p"/task/*/children 2>/dev/null | tr '\n' ' ')"
  kill -KILL "${all[@]}" 2>/dev/null || true
  for p in "${all[@]}"; do gone 10 "$p" || die "$name is still up: pid $p"; done
}
gone() { # gone SECONDS PID; a zombie that nobody reaps has no folder any more
  local i
  for ((i = 0; i < $1 * 50; i++)); do
    ours "$2" || return 0
    sleep 0.02
  done
  return 1
}

kill_hard() { local p; load "$1"; lock; ! p=$(pid) || crash "$p"; }
wipe() { kill_hard "$1"; rm -rf "${base:?}/$name"; }

# --- all of them ---------------------------------------------------------------------------------------------------

each() { # each FUNCTION NAME...: at the same time, as most of it is waiting
  local f=$1 n j jobs=() failed=0
  shift
  for n; do ("$f" "$n") & jobs+=($!); done
  for j in "${jobs[@]}"; do wait "$j" || failed=1; done
  return $failed
}
names() {
  local d
  for d in "$base"/*/; do d=$(basename "$d"); if kind_of "${d%%@*}" >/dev/null; then echo "$d"; fi; done
}
running() { local n; for n in $(names); do (load "$n"; ! pid >/dev/null || echo "$n"); done; }

status() {
  local n f p ports rss
  for n in $(names); do (
    load "$n"
    if p=$(pid); then
      ports=''
      for f in "$dir"/port*; do ports+=" ${f#"$dir"/}=$(cat "$f")"; done
      # It may end meanwhile.
      rss=$(awk '/^VmRSS/ {print $2}' "/proc/$p/status" 2>/dev/null || true)
      printf '%-12s up    pid %-7s %4s MB %s\n' "$n" "$p" "$((${rss:-0} / 1024))" "$ports"
    else
      printf '%-12s down\n' "$n"
    fi
  ); done
}

env_lines() {
  local n of
  if [ $# = 0 ]; then
    mapfile -t list < <(running | grep -v @ | sort -V)
    for of in pg mysql mariadb kafka; do
      n=$(printf '%s\n' "${list[@]}" | grep -x "$of" || printf '%s\n' "${list[@]}" | grep "^${of}[0-9]" | tail -1) &&
        set -- "$@" "$n"
    done
  fi
  for n; do (load "$n"; pid >/dev/null || die "$n is not up"; "${kind}_env") || return; done
  [ ! -e "$base/tls/complete" ] || echo "export TAILPOST_TEST_TLS=$base/tls"
}

with() {
  local n wanted=() lines
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in # a server that is given by its address is not ours to start
      pg*) [ -n "${TAILPOST_TEST_PG_URL:-}" ] || wanted+=("$1") ;;
      mysql*) [ -n "${TAILPOST_TEST_MYSQL_URL:-}" ] || wanted+=("$1") ;;
      mariadb*) [ -n "${TAILPOST_TEST_MARIADB_URL:-}" ] || wanted+=("$1") ;;
      kafka*) [ -n "${TAILPOST_TEST_KAFKA:-}" ] || wanted+=("$1") ;;
      *) wanted+=("$1") ;;
    esac
    shift
  done
  [ $# -gt 1 ] || usage
  shift
  if [ ${#wanted[@]} = 0 ]; then exec "$@"; fi
  trap 'exit 130' INT TERM
  if [ "${TAILPOST_SERVERS_BY:-}" = compose ]; then
    local compose=(docker compose --project-directory "$tools/.." -f "$tools/../docker-compose.yml")
    trap '"${compose[@]}" down --volumes' EXIT
    "${compose[@]}" up --detach --wait postgres mysql mariadb kafka
    n=127.0.0.1:${POSTGRES_PORT:-5432}/outbox
    export TAILPOST_TEST_PG_URL=postgres://repl:repl-pw@$n TAILPOST_TEST_PG_APP_URL=postgres://app:app-pw@$n
    export TAILPOST_TEST_PG_ADMIN_URL=postgres://postgres:postgres-pw@$n TAILPOST_TEST_KAFKA=127.0.0.1:${KAFKA_PORT:-9092}
    for n in MYSQL:${MYSQL_PORT:-3306} MARIADB:${MARIADB_PORT:-3307}; do
      export "TAILPOST_TEST_${n%:*}_URL=mysql://tailpost:tailpost-pw@127.0.0.1:${n#*:}/"
      export "TAILPOST_TEST_${n%:*}_APP_URL=mysql://app:app-pw@127.0.0.1:${n#*:}/"
      export "TAILPOST_TEST_${n%:*}_ADMIN_URL=mysql://admin:admin-pw@127.0.0.1:${n#*:}/"
    done
  else
    prepare
    before=" $(running | tr '\n' ' ')"
    trap stop_new EXIT # also those that the command started; on failure and on Ctrl-C too
    # What an earlier run left behind, such as slots, would fill a server up in the end.
    for n in $(names); do [[ $before = *" $n "* ]] || (wipe "$n"); done
    each up "${wanted[@]}"
    lines=$(env_lines "${wanted[@]}")
    eval "$lines"
  fi
  "$@"
}
stop_new() {
  local n new=()
  for n in $(running); do [[ $before = *" $n "* ]] || new+=("$n"); done
  each down "${new[@]}"
}

command=${1:-}
shift || true
case $command in
  with) with "$@"; exit ;;
  up | down | kill | wipe | status | env | sql | bin) prepare ;;
  *) usage ;;
esac
case $command in
  up | kill) [ $# -gt 0 ] || usage ;;
  sql | bin) [ $# -gt 0 ] || usage; load "$1"; shift ;;
  down | wipe) if [ $# = 0 ]; then mapfile -t list < <(names); set -- "${list[@]}"; fi ;;
esac
case $command in
  up | down | wipe) each "$command" "$@" ;;
  kill) each kill_hard "$@" ;;
  status) status ;;
  env) env_lines "$@" ;;
  sql) "${kind}_sql" "$@" ;;
  bin) "${kind}_bin" ;;
esac
