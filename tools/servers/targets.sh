#!/usr/bin/env bash
# Prints where Apache Solr and RDF4J's server are, fetched from Maven if need be, as `export` lines for eval. Not for every run of
# the tests: about 140 MB.
#
#   tools/servers/targets.sh
set -euo pipefail
tools=$(dirname "$(dirname "$(readlink -f "$0")")")
cache=${TAILPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tailpost}
for target in solr rdf4j; do
  pom=$tools/servers/$target-pom.xml
  version=$(sed -n 's/.*<target.version>\(.*\)<.*/\1/p' "$pom")
  jars=$cache/$target-$version
  if [ ! -d "$jars" ]; then
    "$tools/setup.sh" kafka >&2 # Java and Maven
    mkdir -p "$cache"
    exec 7>"$jars.lock"; flock 7
    if [ ! -d "$jars" ]; then
      echo "fetching $target $version" >&2
      rm -rf "$jars.new"
      mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$jars.new" >&2
      mv "$jars.new" "$jars" # whole or not at all
    fi
  fi
  echo "export TAILPOST_TEST_${target^^}=$jars"
done
