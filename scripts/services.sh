# Starts the servers that tests talk to, on loopback, in a throwaway folder; stops them when the script ends. Sourced.
# Sets AIRLOCK_TEST_POSTGRES_URL and AIRLOCK_TEST_S3_URL.

SERVICES_DIR=
S3_PID=

start_services() {
  SERVICES_DIR=$(mktemp -d "${TMPDIR:-/tmp}/airlock-services-XXXXXX")
  chmod 755 "$SERVICES_DIR"
  trap stop_services EXIT
  start_postgres
  start_s3
}

start_postgres() {
  PG_BIN=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
  local port
  port=$(free_port)
  privileged install -d -o postgres -g postgres "$SERVICES_DIR/pg"
  # Durability is off: the data lives as long as this run. Crash tests of the product kill airlock, not this server.
  as_postgres "$PG_BIN/initdb" -D "$SERVICES_DIR/pg/data" -A trust -U postgres --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
  as_postgres "$PG_BIN/pg_ctl" -D "$SERVICES_DIR/pg/data" -w -s -l "$SERVICES_DIR/pg/log" start \
    -o "-p $port -k $SERVICES_DIR/pg -c listen_addresses=127.0.0.1 -c max_connections=300 -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
  export AIRLOCK_TEST_POSTGRES_URL="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
  echo "  PostgreSQL at 127.0.0.1:$port"
}

as_postgres() {
  printf '  as postgres: %s\n' "${1##*/}" >&2
  (cd / && ${SUDO[@]+"${SUDO[@]}"} runuser -u postgres -- "$@")
}

start_s3() {
  local port
  port=$(free_port)
  mkdir -p "$SERVICES_DIR/s3/airlock"
  export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1
  bin/tools/versitygw --port "127.0.0.1:$port" --access test --secret testsecret posix "$SERVICES_DIR/s3" >"$SERVICES_DIR/s3.log" 2>&1 &
  S3_PID=$!
  for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    kill -0 "$S3_PID" 2>/dev/null || { cat "$SERVICES_DIR/s3.log" >&2; return 1; }
    sleep 0.1
  done
  export AIRLOCK_TEST_S3_URL="s3://airlock?endpoint=http://127.0.0.1:$port&region=us-east-1&use_path_style=true"
  echo "  S3 at 127.0.0.1:$port"
}

stop_services() {
  local code=$?
  trap - EXIT
  [ -z "$S3_PID" ] || kill "$S3_PID" 2>/dev/null || true
  if [ -f "$SERVICES_DIR/pg/data/postmaster.pid" ]; then
    as_postgres "$PG_BIN/pg_ctl" -D "$SERVICES_DIR/pg/data" -m immediate -s stop >/dev/null 2>&1 || true
  fi
  ${SUDO[@]+"${SUDO[@]}"} rm -rf "$SERVICES_DIR"
  exit "$code"
}
