package dbtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the statements around a test
)

// private is the server of this test binary, started at first need.
var private struct {
	sync.Mutex
	url string
	err error
	// alive is held open as long as the test binary lives; its end tells the script to stop the server.
	alive io.Closer
}

func postgresURL(ctx context.Context) (string, error) {
	if u := os.Getenv("AIRLOCK_TEST_POSTGRES_URL"); u != "" {
		return u, nil
	}
	private.Lock()
	defer private.Unlock()
	if private.url == "" && private.err == nil {
		private.url, private.alive, private.err = startPostgres(context.WithoutCancel(ctx))
	}
	return private.url, private.err
}

// script runs beside the tests. When its input ends, because the test binary ended in whatever way, it
// stops the server and removes the folder, so that nothing needs to be called at the end of the tests. It
// ignores SIGPIPE because the binary may have died while the server was starting.
const script = `
set -e
trap '' INT TERM HUP PIPE
dir=$1 port=$2 bin=$3; shift 3
as="$*"
cleanup() {
  $as "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 </dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
$as "$bin/initdb" -D "$dir/data" -A trust -U postgres --no-sync -E UTF8 --locale=C.UTF-8 >"$dir/initdb.log" 2>&1 </dev/null
$as "$bin/pg_ctl" -D "$dir/data" -w -t 120 -l "$dir/log" start >"$dir/start.log" 2>&1 </dev/null \
  -o "-p $port -k $dir -c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
echo ready || true
read -r _ || true
`

func startPostgres(ctx context.Context) (string, io.Closer, error) {
	bin, err := findPostgres()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "airlock-postgres-")
	if err != nil {
		return "", nil, err
	}
	as, err := asPostgres(dir)
	if err != nil {
		return "", nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", nil, err
	}
	args := append([]string{"-c", script, "sh", dir, strconv.Itoa(port), bin}, as...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	// Nobody waits for the script: it outlives this process by a moment.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		return "", nil, fmt.Errorf("start postgres: the script ended: %w", cmd.Wait())
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), in, nil
}

// findPostgres looks where Debian puts the server programs, newest version first, then in PATH.
func findPostgres() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	best, version := "", -1
	for _, d := range dirs {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(d)))
		if _, statErr := os.Stat(filepath.Join(d, "initdb")); err == nil && statErr == nil && n > version {
			best, version = d, n
		}
	}
	if best != "" {
		return best, nil
	}
	p, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("AIRLOCK_TEST_POSTGRES_URL is not set and no server is installed: %w", err)
	}
	return filepath.Dir(p), nil
}

// asPostgres gives the command in front that gives up root, as which the server refuses to run.
func asPostgres(dir string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return []string{"runuser", "-u", "postgres", "--"}, os.Chown(dir, uid, gid)
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	if err := l.Close(); err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

func randomText() string { return strings.ToLower(rand.Text()) }
