# shellcheck shell=bash
# Postgres with logical decoding, on TCP and on a Unix socket in its folder. (Sourced.)

# The folder of the server's programs: the newest of Debian's versions, or where pg_config or PATH say.
postgres_bin() {
  local bin
  for bin in $(compgen -G '/usr/lib/postgresql/*/bin' | sort -rV) "$(pg_config --bindir 2>/dev/null)" \
    "$(dirname "$(command -v initdb)")"; do
    if [[ -x $bin/initdb && -x $bin/postgres ]]; then echo "$bin"; return 0; fi
  done
  return 1
}

as_postgres_user() {
  if [[ $(id -u) -eq 0 ]]; then runuser -u "$POSTGRES_OS_USER" -- "$@"; else "$@"; fi
}

# Makes the folder of the service. It lies elsewhere, and a link leads there, where the checkout has a path that
# the Postgres user cannot enter (a root's home) or that is too long for a Unix socket (107 bytes).
make_postgres_dir() {
  local link="$STACK_DIR/postgres" dir
  [[ -e $link ]] && return
  rm -f "$link" # it leads nowhere once the machine has emptied its temporary folder
  mkdir -p "$link"
  [[ $(id -u) -ne 0 ]] || chown "$POSTGRES_OS_USER" "$link"
  as_postgres_user test -w "$link" && ((${#link} <= 88)) && return
  rmdir "$link"
  dir=$(mktemp -d "${TMPDIR:-/tmp}/fencepost-postgres-XXXXXX")
  [[ $(id -u) -ne 0 ]] || chown "$POSTGRES_OS_USER" "$dir"
  ln -sfn "$dir" "$link"
  echo "postgres: user $POSTGRES_OS_USER cannot use $link; its data is in $dir" >&2
}

start_postgres() {
  make_postgres_dir
  local dir bin; dir=$(realpath "$STACK_DIR/postgres"); bin=$(postgres_bin)
  if ! alive "$dir"; then
    need_free_port postgres "$POSTGRES_PORT" POSTGRES_PORT
    [[ -e $dir/data/PG_VERSION ]] || (cd / && as_postgres_user "$bin/initdb" --pgdata "$dir/data" --username postgres \
      --auth trust --encoding UTF8 --locale C --no-sync >/dev/null)
    postgres_settings "$dir" | (cd / && as_postgres_user tee "$dir/data/postgresql.auto.conf" >/dev/null)
    (cd / && as_postgres_user "$bin/pg_ctl" start --pgdata "$dir/data" --log "$dir/log" --no-wait >/dev/null)
  fi
  wait_ready postgres "$dir" "$bin/pg_isready" --host 127.0.0.1 --port "$POSTGRES_PORT"
}

# Slots and connections for a test run that leaves some behind. Written anew at each start: not for hand edits.
postgres_settings() {
  cat <<END
listen_addresses = '127.0.0.1'
port = $POSTGRES_PORT
unix_socket_directories = '$1'
external_pid_file = '$1/pid'
wal_level = logical
max_wal_senders = 64
max_replication_slots = 64
max_connections = 200
shared_buffers = 256MB
max_wal_size = 4GB
checkpoint_timeout = 15min
log_checkpoints = off
END
}

# SIGINT ends sessions and shuts down; SIGQUIT, for data that goes anyway, does not stop to write it.
stop_postgres() {
  local dir; dir=$(realpath "$STACK_DIR/postgres")
  stop_process "$dir" "$([[ $1 == wipe ]] && echo QUIT || echo INT)"
  if [[ $1 == wipe ]]; then rm -rf "$dir"; fi
}
