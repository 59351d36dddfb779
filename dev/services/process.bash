# shellcheck shell=bash
# A service is a process that runs in its own folder, which also holds its `pid` file and its `log`. (Sourced.)

# True while the service of folder $1 runs. That the process stands in that folder tells it from a stranger
# that was given the same id after a crash or a reboot.
alive() {
  local pid; pid=$(head -n 1 "$1/pid" 2>/dev/null) && [[ -n $pid ]] || return 1
  local cwd; cwd=$(readlink "/proc/$pid/cwd") || return 1
  [[ $cwd == "$(realpath "$1")"* ]]
}

# Refuses to start service $1 on a port that something else listens on: the service would die, and its port
# would still answer.
need_free_port() {
  local port=$2 variable=$3
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
  echo "$1: port $port is taken by another process; end it, or choose another by $variable" >&2
  return 1
}

# Waits up to 120 s until the rest of the arguments, a command, succeeds for service $1 of folder $2.
wait_ready() {
  local name=$1 dir=$2; shift 2
  for ((i = 0; i < 2400; i++)); do
    if ((i > 20)) && ! alive "$dir"; then break; fi
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  echo "$name did not start; the end of $dir/log:" >&2
  tail -n 20 "$dir/log" >&2 || true
  return 1
}

# Ends the service of folder $1 by signal $2; after 30 s by force.
stop_process() {
  local dir=$1 signal=$2 pid
  if alive "$dir"; then
    pid=$(head -n 1 "$dir/pid")
    kill "-$signal" "$pid"
    for ((i = 0; i < 600; i++)); do alive "$dir" || break; sleep 0.05; done
    if alive "$dir"; then kill -KILL "$pid"; fi
  fi
  rm -f "$dir/pid"
}
