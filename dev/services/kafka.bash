# shellcheck shell=bash
# One Kafka node, broker and KRaft controller, run from plain jars. (Sourced.)

# Runs a Kafka command-line class, such as org.apache.kafka.tools.TopicCommand. It lives for a second: no
# optimizing compiler, the simplest collector.
kafka_tool() {
  java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -cp "$KAFKA_LIBS/*" "$@"
}

# Downloads the jars once for each state of pom.xml. Under a lock and by a rename, because stacks share them.
fetch_kafka() {
  local pom="$CHECKOUT/dev/kafka/pom.xml"
  mkdir -p "$(dirname "$KAFKA_LIBS")"
  (
    flock 9
    cmp -s "$pom" "$KAFKA_LIBS/pom.xml" && exit
    rm -rf "$KAFKA_LIBS" "$KAFKA_LIBS.part"
    mvn -q -B -Dstyle.color=never -f "$pom" dependency:copy-dependencies -DoutputDirectory="$KAFKA_LIBS.part" -DincludeScope=runtime
    cp "$pom" "$KAFKA_LIBS.part/pom.xml"
    mv "$KAFKA_LIBS.part" "$KAFKA_LIBS"
  ) 9>"$KAFKA_LIBS.lock"
}

# Ready when it speaks the protocol: an ApiVersions request (key 18, version 0) is answered. An open port is not enough.
kafka_ready() (
  exec 3<>"/dev/tcp/127.0.0.1/$KAFKA_PORT"
  printf '\0\0\0\012\0\022\0\0\0\0\0\1\0\0' >&3
  [[ $(timeout 1 head -c 8 <&3 | wc -c) -eq 8 ]]
)

start_kafka() {
  local dir="$STACK_DIR/kafka"
  mkdir -p "$dir"
  if ! alive "$dir"; then
    need_free_port kafka "$KAFKA_PORT" KAFKA_PORT
    need_free_port kafka "$KAFKA_CONTROLLER_PORT" KAFKA_CONTROLLER_PORT
    fetch_kafka
    kafka_properties "$dir" >"$dir/server.properties"
    [[ -e $dir/data/meta.properties ]] || kafka_tool kafka.tools.StorageTool format \
      --cluster-id MkU3OEVBNTcwNTJENDM2Qk --config "$dir/server.properties" >"$dir/log" 2>&1
    (
      cd "$dir" || exit
      echo "$BASHPID" >pid
      exec setsid java -Xms"$KAFKA_HEAP" -Xmx"$KAFKA_HEAP" -XX:+UseG1GC -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
        -cp "$KAFKA_LIBS/*" kafka.Kafka server.properties >log 2>&1 </dev/null
    ) &
  fi
  wait_ready kafka "$dir" kafka_ready
}

# One node, so every internal topic has one copy. Topics are made by `fencepost migrate` alone, which sets their
# retention. Indexes are allocated whole: small ones keep hundreds of topics cheap. An abandoned transaction is
# looked for every second, because readers wait for it.
kafka_properties() {
  cat <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$KAFKA_CONTROLLER_PORT
listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT,CONTROLLER://127.0.0.1:$KAFKA_CONTROLLER_PORT
advertised.listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$1/data
num.network.threads=2
num.io.threads=4
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.bytes=268435456
log.index.size.max.bytes=1048576
log.retention.hours=-1
log.cleaner.dedupe.buffer.size=16777216
END
}

stop_kafka() { stop_process "$STACK_DIR/kafka" "$([[ $1 == wipe ]] && echo KILL || echo TERM)"; }
