#!/usr/bin/env bash
# Installs what this machine lacks to build and test tailpost; quick and silent when all is there.
#
#   tools/setup.sh [PART...]        parts: build, rust, postgres, mysql, kafka, chromium (default: all of them); valgrind
#   tools/setup.sh package NAME...  one more Debian package, for the scripts beside this one
#   tools/setup.sh toolchain        prints the rustup toolchain to use, if it is not the pinned one by its own name
#
# As root, or where sudo asks no password, it installs by apt-get; else it says what to install and fails.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "$0")")")
have() { command -v "$1" >/dev/null 2>&1; }
packages=() reasons=()
need() { # need PACKAGE REASON
  [[ " ${packages[*]} " != *" $1 "* ]] || return 0
  packages+=("$1"); reasons+=("  $1: $2")
}

# An offline machine may hold the pinned compiler under another name, such as `stable`, and must not try to download it.
toolchain() {
  local pinned name
  [ -z "${RUSTUP_TOOLCHAIN:-}" ] && have rustup || return 0
  pinned=$(sed -n 's/^channel *= *"\(.*\)".*/\1/p' "$root/rust-toolchain.toml")
  ! rustup toolchain list | grep -q "^$pinned-" || return 0
  while read -r name _; do
    if [ "$(rustup run "$name" rustc --version 2>/dev/null | cut -d' ' -f2)" = "$pinned" ]; then echo "$name"; return; fi
  done < <(rustup toolchain list)
}

build() { # librdkafka is compiled from C and links OpenSSL and zlib
  have cc || need gcc "C compiler, for librdkafka, ring and zstd"
  have make || need make "builds librdkafka"
  have pkg-config || need pkg-config "finds OpenSSL and zlib"
  [ -e /usr/include/openssl/ssl.h ] || pkg-config --exists openssl 2>/dev/null || need libssl-dev "TLS to Kafka"
  [ -e /usr/include/zlib.h ] || pkg-config --exists zlib 2>/dev/null || need zlib1g-dev "gzip in Kafka batches"
}

rust() {
  have cargo || { echo "setup: cargo is missing: install Rust with rustup (https://rustup.rs)" >&2; exit 1; }
  local name tool missing=()
  name=$(toolchain)
  [ -z "$name" ] || export RUSTUP_TOOLCHAIN=$name
  for tool in fmt:rustfmt clippy:clippy; do cargo "${tool%:*}" --version >/dev/null 2>&1 || missing+=("${tool#*:}"); done
  [ ${#missing[@]} = 0 ] || (cd "$root" && rustup component add "${missing[@]}") ||
    { echo "setup: install the Rust components ${missing[*]}" >&2; exit 1; }
}

postgres() {
  have openssl || need openssl "certificates of the test servers"
  [ -n "${TAILPOST_PG_BIN:-}" ] || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || [ -x "$(pg_config --bindir 2>/dev/null)/postgres" ] ||
    need postgresql "the demo and the tests run a private server of their own"
}

mysql() { # MySQL and MariaDB themselves are never installed: tools/servers.sh unpacks them privately
  have openssl || need openssl "certificates of the test servers"
  have dpkg-deb && have apt-get || { have mysqld && have mariadbd; } ||
    { need mysql-server "the tests run a private server of their own"; need mariadb-server "the tests run a private server of their own"; }
}

kafka() {
  have openssl || need openssl "certificates of the test servers"
  have java || need openjdk-17-jre-headless "runs the Kafka broker of the tests (17 or later)"
  have mvn || need maven "fetches the Kafka broker of the tests"
}

chromium() {
  type -P chromium >/dev/null || need chromium "shows the page of \`tailpost run\` in a test"
}

valgrind() {
  type -P valgrind >/dev/null || need valgrind "counts instructions, for bench-micro"
}

install() {
  [ ${#packages[@]} -gt 0 ] || return 0
  local as=()
  [ "$(id -u)" = 0 ] || as=(sudo -n)
  if ! have apt-get || { [ ${#as[@]} -gt 0 ] && ! sudo -n true 2>/dev/null; }; then
    { echo "setup: missing here, by their Debian names:"; printf '%s\n' "${reasons[@]}"
      ! have apt-get || echo "install them: sudo apt-get install -y ${packages[*]}"; } >&2
    exit 1
  fi
  echo "setup: apt-get install ${packages[*]}" >&2
  local apt=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends
    -o DPkg::Lock::Timeout=120 install "${packages[@]}") # waits for another apt-get that runs just now
  # The package lists are refreshed only where the install fails without it: a new container has none, or old ones.
  "${apt[@]}" >/dev/null 2>&1 || { "${as[@]}" apt-get -qq update && "${apt[@]}" >/dev/null; } ||
    { echo "setup: apt-get could not install ${packages[*]}" >&2; exit 1; }
}

case ${1:-} in
  toolchain) toolchain; exit ;;
  package) shift; for p; do need "$p" "asked for"; done ;;
  *)
    [ $# -gt 0 ] || set -- rust build postgres mysql kafka chromium
    for part; do
      case $part in
        rust | build | postgres | mysql | kafka | chromium | valgrind) "$part" ;;
        *) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2 ;;
      esac
    done ;;
esac
install
