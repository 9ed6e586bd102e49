# Shared by the scripts: who may do privileged things, and how they are announced. Sourced, never run.

# need_root CAN_BE_TYPED: sets SUDO to "" (already root) or "sudo -n"; otherwise says what to type and exits 2.
need_root() {
  if [ "$(id -u)" = 0 ]; then
    SUDO=()
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    SUDO=(sudo -n)
  else
    printf 'This needs root: sandboxes mount file systems, and packages may be missing.\nType:\n\n  sudo %s\n\n' "$1" >&2
    exit 2
  fi
}

# privileged [--preserve-env] COMMAND...: names the command, then runs it as root.
privileged() {
  local flags=()
  if [ "$1" = --preserve-env ]; then
    [ ${#SUDO[@]} -eq 0 ] || flags=(--preserve-env)
    shift
  fi
  printf '  as root: %s\n' "$*"
  ${SUDO[@]+"${SUDO[@]}"} ${flags[@]+"${flags[@]}"} "$@"
}

# free_port: a loopback port nobody listens on now.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}
