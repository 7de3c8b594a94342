# shellcheck shell=bash disable=SC2154,SC2119 # servers.sh sets the variables
# PostgreSQL 14 and later. Sourced by servers.sh; for each kind of server its contract is there.
#
# On 127.0.0.1 and 127.0.0.2 and on a Unix socket in the server's folder, with TLS; roles and databases: postgres-init.sql.

postgres_name() { # pg -> pg17
  local newest
  if [[ $1 != pg && $1 != pg@* ]]; then echo "$1"; return; fi
  newest=$(postgres_here | sort -rn | head -1)
  if [ -z "$newest" ]; then
    if [ "$(id -u)" = 0 ]; then "$tools/setup.sh" postgres; else (postgres_fetch "$(postgres_offered)"); fi
    newest=$(postgres_here | sort -rn | head -1)
  fi
  [ -n "$newest" ] || die "no PostgreSQL here: install the package postgresql, or set TAILPOST_TEST_PG_URL and TAILPOST_TEST_PG_ADMIN_URL"
  echo "pg${newest%% *}${1#pg}"
}

# Lines "VERSION FOLDER": the host's own. Fetched ones count only where the host has none, so that `pg` does not change
# its meaning because a test once fetched a newer version.
postgres_here() {
  local found
  found=$(postgres_in /usr/lib/postgresql/*/bin "$(pg_config --bindir 2>/dev/null)")
  if [ -n "$found" ]; then echo "$found"; else postgres_in "$cache"/pg*/usr/lib/postgresql/*/bin; fi
}
postgres_in() {
  local b
  for b; do
    if [ -x "$b/initdb" ] && [ -x "$b/postgres" ]; then "$b/postgres" --version | sed -E "s|[^0-9]*([0-9]+).*|\1 $b|"; fi
  done
}
postgres_offered() { apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -1; }

postgres_bin() {
  local version=${name%%@*} found
  version=${version#pg}
  found=$(postgres_find "$version")
  if [ -z "$found" ]; then
    (postgres_fetch "$version") || exit 1
    found=$(postgres_find "$version")
  fi
  [ -n "$found" ] || die "PostgreSQL $version could not be had"
  echo "$found"
}
postgres_find() {
  postgres_in "/usr/lib/postgresql/$1/bin" "$(pg_config --bindir 2>/dev/null)" "$cache/pg$1/usr/lib/postgresql/$1/bin" "$cache/pg$1/bin" |
    sed -n "s/^$1 //p" | head -1
}

# From the host's own Debian release where that has the version: installed for root, unpacked privately for others.
# Else from the release that has it, always privately; and one that no release has from a Maven artifact of its binaries.
postgres_fetch() {
  local version=$1 suite
  mkdir -p "$cache"
  exec 7>"$cache/pg$version.lock"; flock 7
  [ -z "$(postgres_find "$version")" ] || return 0
  say "fetching PostgreSQL $version"
  if [[ "$(apt-cache policy "postgresql-$version" 2>/dev/null)" = *Candidate:\ [0-9]* ]]; then
    if [ "$(id -u)" = 0 ]; then "$tools/setup.sh" package "postgresql-$version" >&2; return; fi
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  else
    case $version in
      17) suite=trixie ;;
      18) suite=forky ;;
      14) postgres_from_maven "$version" 14.20.0; return ;;
      16) postgres_from_maven "$version" 16.9.0; return ;;
      *) die "PostgreSQL $version is not offered here: install it, or set TAILPOST_TEST_PG_URL and TAILPOST_TEST_PG_ADMIN_URL" ;;
    esac
  fi
  "$tools/servers/unpack.sh" "$cache/pg$version" "$suite" "usr/lib/postgresql/$version/bin" "postgresql-$version" >&2
}
postgres_from_maven() {
  "$tools/setup.sh" kafka >&2 || exit 1 # Java and Maven
  local root=$cache/pg$1 arch
  arch=$([ "$(uname -m)" = aarch64 ] && echo linux-arm64v8 || echo linux-amd64)
  rm -rf "$root.new"; mkdir -p "$root.new"
  (cd "$root.new" && maven dependency:unpack -DoutputDirectory=. \
    -Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-$arch:$2" && tar -xf ./*.txz && rm ./*.txz) ||
    die "PostgreSQL $1 could not be fetched"
  rm -rf "$root"; mv "$root.new" "$root"
}

postgres_start() {
  local bin options initdb
  bin=$(postgres_bin)
  take_port
  if [ ! -e "$dir/initialised" ]; then
    rm -rf "$dir/data"
    if [ -n "$(option STANDBY_OF)" ]; then
      postgres_copy "$(option STANDBY_OF)"
    else
      echo postgres-pw >"$dir/password"; chmod 644 "$dir/password"
      read -ra initdb <<<"$(option INITDB_OPTS)"
      run "$bin/initdb" -D "$dir/data" -U postgres -A scram-sha-256 --pwfile="$dir/password" --no-sync -E UTF8 --locale=C \
        "${initdb[@]}" >"$dir/initdb.log" 2>&1 || show_log "$dir/initdb.log"
      echo "include 'tailpost.conf'" >>"$dir/data/postgresql.conf"
    fi
  fi
  # Each line but the first is for one role whose way in is tested; the rest use SCRAM, with TLS or without.
  cat >"$dir/data/pg_hba.conf" <<'HBA'
local   all              all                     trust
hostssl all              cert_user  127.0.0.0/8  cert
hostssl all              tls_user   127.0.0.0/8  scram-sha-256
host    all              tls_user   127.0.0.0/8  reject
host    all              md5_user   127.0.0.0/8  md5
host    all              pw_user    127.0.0.0/8  password
host    all,replication  all        127.0.0.0/8  scram-sha-256
HBA
  # fsync is off: a killed server loses nothing by that, only a machine without power does.
  cat >"$dir/data/tailpost.conf" <<CONF
port = $(port)
listen_addresses = '127.0.0.1,127.0.0.2'
unix_socket_directories = '$dir'
ssl = on
ssl_ca_file = '$base/tls/ca.crt'
ssl_cert_file = '$base/tls/server.crt'
ssl_key_file = '$base/tls/server.key'
wal_level = logical
max_replication_slots = 50
max_wal_senders = 50
wal_sender_timeout = 10s
max_connections = 200
max_prepared_transactions = 10
fsync = off
full_page_writes = off
shared_buffers = 16MB
jit = off
log_line_prefix = '%m [%p] %u@%d '
CONF
  # A crash leaves the old number, and PostgreSQL refuses to start while any process has it, a zombie too.
  # That nobody works in the data folder is the better proof; after a crash the last children may take a moment.
  while readlink /proc/[0-9]*/cwd | grep -qx "$dir/data"; do sleep 0.02; done
  rm -f "$dir/data/postmaster.pid" "$dir"/.s.PGSQL.*
  options=$(option OPTS)
  # It gives back control when connections are accepted, or when the server has died.
  run "$bin/pg_ctl" -s -w -t 120 -D "$dir/data" -l "$dir/log" -o "$options" start >"$dir/pg_ctl.log" 2>&1 9>&- || {
    cat "$dir/pg_ctl.log" >&2; show_log "$dir/log"
  }
  # Every start of a standby but the first finds what was replicated, and the roles with it.
  if [ -n "$(option STANDBY_OF)" ]; then
    touch "$dir/initialised"
  elif [ ! -e "$dir/initialised" ]; then
    PGDATABASE=postgres postgres_sql -q -f "$tools/servers/postgres-init.sql" || die "$name: the first statements failed"
    touch "$dir/initialised"
  fi
}

# A standby is a copy of its primary that goes on by streaming from it, through a slot of its own there. The database's name
# in the connection string is for the synchronisation of slots.
postgres_copy() {
  local primary slot=${own,,}
  primary=$base/$(postgres_name "$1")
  run "$bin/pg_basebackup" -D "$dir/data" -X stream -c fast -R -C -S "$slot" --no-sync \
    -d "host=127.0.0.1 port=$(cat "$primary/port") user=postgres password=postgres-pw dbname=outbox" >"$dir/initdb.log" 2>&1 ||
    show_log "$dir/initdb.log"
}

postgres_pid() { head -n 1 "$dir/data/postmaster.pid"; }
postgres_signal() { echo INT; } # TERM would wait for the clients

postgres_sql() {
  local bin
  bin=$(postgres_bin)
  # The Maven artifact has no psql; any newer one will do.
  [ -x "$bin/psql" ] || bin=$(dirname "$(command -v psql || echo "$(postgres_here | sort -rn | head -1 | cut -d' ' -f2)/psql")")
  PGHOST=$dir PGPORT=$(port) PGUSER=postgres PGDATABASE=${PGDATABASE:-outbox} env -u PGSERVICE -u PGOPTIONS \
    "$bin/psql" -X -v ON_ERROR_STOP=1 "$@"
}

postgres_env() {
  local at
  at=127.0.0.1:$(port)/outbox
  cat <<LINES
export TAILPOST_TEST_PG_URL=postgres://repl:repl-pw@$at
export TAILPOST_TEST_PG_APP_URL=postgres://app:app-pw@$at
export TAILPOST_TEST_PG_ADMIN_URL=postgres://postgres:postgres-pw@$at
export TAILPOST_TEST_PG_SOCKET_DIR=$dir
export TAILPOST_TEST_PG_PORT=$(port)
LINES
}
