#!/usr/bin/env bash
# Prints the folder with the jars of Kafka Connect and Debezium's connectors, fetched from Maven if need be. Not for every run of
# the tests: about 100 MB.
#
#   tools/servers/debezium.sh
set -euo pipefail
tools=$(dirname "$(dirname "$(readlink -f "$0")")")
cache=${TAILPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tailpost}
pom=$tools/servers/debezium-pom.xml
version=$(sed -n 's/.*<debezium.version>\(.*\)<.*/\1/p' "$pom")
jars=$cache/debezium-$version
if [ ! -d "$jars" ]; then
  "$tools/setup.sh" kafka >&2
  mkdir -p "$cache"
  exec 7>"$jars.lock"; flock 7
  if [ ! -d "$jars" ]; then
    echo "fetching Debezium $version" >&2
    rm -rf "$jars.new"
    mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$jars.new" >&2
    mv "$jars.new" "$jars" # whole or not at all
  fi
fi
echo "$jars"
