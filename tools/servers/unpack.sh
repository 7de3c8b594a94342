#!/usr/bin/env bash
# unpack.sh FOLDER SUITE BINS PACKAGE...
# Unpacks Debian packages of any suite with all that they depend on, libc too, below FOLDER. Installs nothing and leaves
# the host's package lists alone, so it needs no root and versions live side by side. The programs in FOLDER/BIN, for each
# BIN of the list BINS, are wrapped to run with the libraries beside them, so they can be called by their path.
# +PACKAGE comes without what it depends on. A PACKAGE with a / is a folder from elsewhere, copied into FOLDER.
set -euo pipefail
folder=$(readlink -f "$1") suite=$2
read -ra bins <<<"$3"
shift 3
packages=() alone=() folders=()
for p; do
  case $p in
    */*) folders+=("$(readlink -f "$p")") ;;
    +*) alone+=("${p#+}") ;;
    *) packages+=("$p") ;;
  esac
done
command -v dpkg-deb >/dev/null || { echo "unpack: only on Debian and its like" >&2; exit 1; }
new=$folder.new apt=$folder.apt
rm -rf "$new" "$apt"
mkdir -p "$apt"/{lists/partial,archives/partial,parts,log} "$new"/usr/{bin,sbin,lib,lib64}
trap 'rm -rf "$apt" "$new"' EXIT

# The mirror is the host's own. Its security archive is left out: it has no suites of other releases under the same name.
# shellcheck disable=SC2016 # the format is apt's
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -e security -e '^file:' | head -1 || true)
[ -n "$uri" ] || { echo "unpack: this host names no Debian mirror" >&2; exit 1; }
signed=''
for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do [ ! -e "$keyring" ] || signed="[signed-by=$keyring] "; done
echo "deb $signed$uri $suite main" >"$apt/sources.list"

# Packages that only a real installation has a use for are said to be there already.
arch=$(dpkg --print-architecture)
for p in perl postgresql-common ssl-cert libllvm14 libllvm19; do
  cat <<STATUS
Package: $p
Status: install ok installed
Version: 99:1
Architecture: $arch
Multi-Arch: allowed
Maintainer: none
Description: none

STATUS
done >"$apt/status"
touch "$apt/extended_states" "$apt/preferences"

# An apt of its own: it knows only the suite and the packages above.
cat >"$apt/apt.conf" <<CONF
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::State::extended_states "$apt/extended_states";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
Dir::Log "$apt/log";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/parts";
Dir::Etc::preferences "$apt/preferences";
Dir::Etc::preferencesparts "$apt/parts";
APT::Sandbox::User "$(id -un)";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
CONF
get() { APT_CONFIG=$apt/apt.conf apt-get -qq -y "$@"; }
get update
get install --download-only "${packages[@]}"
[ ${#alone[@]} = 0 ] || (cd "$apt/archives" && get download "${alone[@]}")

# Links first, as in an installed system: then /lib/... and /usr/lib/... are one folder.
for d in bin sbin lib lib64; do ln -s "usr/$d" "$new/$d"; done
for deb in "$apt"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$new" \
    --exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/locale'
done
for f in "${folders[@]}"; do cp -a --no-preserve=ownership "$f" "$new"; done

loader=$(find "$new/usr/lib" -name 'ld-linux-*.so.*' | head -1)
loader=$folder/${loader#"$new"/}
mapfile -t programs < <(find "${bins[@]/#/$new/}" -mindepth 1 -maxdepth 1 -type f)
for program in "${programs[@]}"; do
  [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
  mv "$program" "$program.elf"
  path=$folder/${program#"$new"/} # where it will be
  cat >"$program" <<WRAPPER
#!/bin/sh
exec "$loader" --library-path "$(dirname "$loader")" --argv0 "$path" "$path.elf" "\$@"
WRAPPER
  chmod 755 "$program"
done
rm -rf "$folder"
mv "$new" "$folder"
