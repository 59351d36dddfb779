# shellcheck shell=bash
# Redis as counters want it: an append-only file synced every second, and no eviction. (Sourced.)

start_redis() {
  local dir="$STACK_DIR/redis"
  mkdir -p "$dir"
  if ! alive "$dir"; then
    need_free_port redis "$REDIS_PORT" REDIS_PORT
    (cd "$dir" && exec setsid redis-server --bind 127.0.0.1 --port "$REDIS_PORT" --dir "$dir" --pidfile "$dir/pid" \
      --logfile "$dir/log" --daemonize yes --save '' --appendonly yes --appendfsync everysec \
      --maxmemory-policy noeviction >/dev/null)
  fi
  wait_ready redis "$dir" redis_ready
}

redis_ready() { [[ $(redis-cli -h 127.0.0.1 -p "$REDIS_PORT" ping) == PONG ]]; }

stop_redis() { stop_process "$STACK_DIR/redis" "$([[ $1 == wipe ]] && echo KILL || echo TERM)"; }
