# shellcheck shell=bash disable=SC2154,SC2119 # servers.sh sets the variables
# Apache Kafka: one JVM as broker and controller (KRaft). Sourced by servers.sh; for each kind of server its contract is there.
#
# Four listeners on 127.0.0.1, always: plain, TLS (a client certificate is optional), and SASL with TLS and without, by
# SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN. The user is kafka, the password kafka-pw.

kafka_name() { echo "$1"; }
kafka_pid() { cat "$dir/pid"; }
kafka_signal() { echo TERM; }
kafka_sql() { die "kafka speaks no SQL"; }

kafka_bin() { # the broker's jars, from Maven
  local version=${KAFKA_VERSION:-4.4.0} jars
  jars=$cache/kafka-$version
  if [ ! -d "$jars" ]; then (
    "$tools/setup.sh" kafka >&2 || exit 1
    mkdir -p "$cache"
    exec 7>"$jars.lock"; flock 7
    [ ! -d "$jars" ] || exit 0
    say "fetching Kafka $version"
    rm -rf "$jars.new"
    maven -f "$tools/servers/kafka-pom.xml" dependency:copy-dependencies -Dkafka.version="$version" \
      -DoutputDirectory="$jars.new" || die "Kafka $version could not be fetched"
    mv "$jars.new" "$jars" # whole or not at all
  ) || exit 1; fi
  echo "$jars"
}

# What each start would do anew, done once for all of them: the folder is formatted, and the classes that a broker loads lie in an
# archive that the JVM maps (class data sharing), which halves the processor time of a start.
kafka_ready() {
  local jars=$1 ready
  ready=$jars-$(java -fullversion 2>&1 | cksum | cut -d ' ' -f 1)
  if [ ! -d "$ready" ]; then (
    exec 7>"$jars.lock"; flock 7
    [ ! -d "$ready" ] || exit 0
    dir=$base/kafka-ready
    rm -rf "$dir" "$ready.new"
    mkdir -p "$dir/data" "$ready.new"
    [ "$(id -u)" != 0 ] || chown -R "$user" "$dir"
    for label in '' ssl sasl_ssl sasl controller; do take_port $label; done
    kafka_settings | sed "s|^log.dirs=.*|log.dirs=$dir/data|" >"$dir/server.properties"
    run "${java[@]}" -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format -c "$dir/server.properties" \
      -t "$(openssl rand -base64 16 | tr '/+' '_A' | cut -c 1-22)" \
      --add-scram 'SCRAM-SHA-512=[name=kafka,password=kafka-pw]' --add-scram 'SCRAM-SHA-256=[name=kafka,password=kafka-pw]' \
      >"$dir/format.log" 2>&1 || show_log "$dir/format.log"
    cp -R "$dir/data" "$ready.new/data"
    # Without it a start only takes longer.
    kafka_run -XX:ArchiveClassesAtExit="$dir/data/classes.jsa"
    kill -TERM $child
    wait $child || true
    mv "$dir/data/classes.jsa" "$ready.new/" || true
    mv "$ready.new" "$ready" # whole or not at all
    rm -rf "$dir"
  ) || exit 1; fi
  echo "$ready"
}

# kafka_run ARGUMENT...: starts a broker in $dir and waits until clients can come; $child is its process.
kafka_run() {
  local jit=() until
  # The cheap compiler starts sooner, which is most of what a short test sees.
  [ "${KAFKA_JIT:-c1}" = full ] || jit=(-XX:TieredStopAtLevel=1)
  run_in=$dir/data become setsid "${java[@]}" "$@" -Xms64m -Xmx"${KAFKA_HEAP:-256m}" -XX:+ExitOnOutOfMemoryError \
    "${jit[@]}" kafka.Kafka "$dir/server.properties" >"$dir/log" 2>&1 </dev/null 7>&- 9>&- &
  child=$! # no shell in between: it is the broker's own
  echo $child >"$dir/pid"
  until=$((SECONDS + 120))
  # It says so when the controller lets clients in; the port alone is open long before.
  until grep -qs 'Kafka Server started' "$dir/log" && listens "$(port)"; do
    if ((SECONDS > until)) || ! kill -0 $child 2>/dev/null; then show_log "$dir/log"; fi
    sleep 0.05
  done
}

kafka_start() {
  local jars java label ready child
  jars=$(kafka_bin)
  command -v java >/dev/null || "$tools/setup.sh" kafka
  java=(java -XX:+UseSerialGC -Xshare:auto -cp "$jars/*" -Dorg.slf4j.simpleLogger.showDateTime=true
    -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS)
  ready=$(kafka_ready "$jars")
  for label in '' ssl sasl_ssl sasl controller; do take_port $label; done
  kafka_settings >"$dir/server.properties"
  if [ ! -s "$dir/data/meta.properties" ]; then
    rm -rf "$dir/data"
    cp -R "$ready/data" "$dir/data"
    [ "$(id -u)" != 0 ] || chown -R "$user" "$dir/data"
  fi
  [ ! -e "$dir/log" ] || mv "$dir/log" "$dir/log.before"
  kafka_run -XX:SharedArchiveFile="$ready/classes.jsa"
}

kafka_settings() {
  local listeners l m
  listeners=PLAINTEXT://127.0.0.1:$(port),SSL://127.0.0.1:$(port ssl)
  listeners+=,SASL_SSL://127.0.0.1:$(port sasl_ssl),SASL_PLAINTEXT://127.0.0.1:$(port sasl)
  cat <<SETTINGS
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$(port controller)
controller.listener.names=CONTROLLER
listeners=$listeners,CONTROLLER://127.0.0.1:$(port controller)
advertised.listeners=$listeners
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
log.dirs=$dir/data

ssl.keystore.type=PEM
ssl.keystore.location=$base/tls/server.pem
ssl.truststore.type=PEM
ssl.truststore.location=$base/tls/ca.crt
listener.name.ssl.ssl.client.auth=requested
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN

# One broker: nothing to copy to.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Small and quick: one partition of each internal topic, 8 MB instead of 128 for the cleaner.
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.num.partitions=1
log.cleaner.dedupe.buffer.size=8388608
num.network.threads=2
num.io.threads=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
# A killed broker's registration is refused until its old session is over, 9 s by default.
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
# Transactions over their timeout are looked for each 10 s by default.
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
SETTINGS
  for l in sasl_ssl sasl_plaintext; do
    m=org.apache.kafka.common.security
    cat <<SETTINGS
listener.name.$l.scram-sha-512.sasl.jaas.config=$m.scram.ScramLoginModule required;
listener.name.$l.scram-sha-256.sasl.jaas.config=$m.scram.ScramLoginModule required;
listener.name.$l.plain.sasl.jaas.config=$m.plain.PlainLoginModule required user_kafka="kafka-pw";
SETTINGS
  done
  option OPTS | tr -s ' ' '\n' # last, so that they win
}

kafka_env() {
  cat <<LINES
export TAILPOST_TEST_KAFKA=127.0.0.1:$(port)
export TAILPOST_TEST_KAFKA_SSL=127.0.0.1:$(port ssl)
export TAILPOST_TEST_KAFKA_SASL_SSL=127.0.0.1:$(port sasl_ssl)
export TAILPOST_TEST_KAFKA_SASL=127.0.0.1:$(port sasl)
LINES
}
