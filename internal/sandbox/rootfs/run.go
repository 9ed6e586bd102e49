package rootfs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// command is a program of the host that may mount, chroot and start children.
type command struct {
	argv   []string
	env    []string
	stdin  io.Reader
	stdout io.Writer // nil: joined with stderr
	out    io.Writer // sees everything that is printed and not taken by stdout; may be nil
	noNet  bool
}

// run starts a program as the first process of a pid namespace with mounts of its own: when it ends, or ctx does,
// nothing it started and nothing it mounted is left, however it ended.
func run(ctx context.Context, c command) error {
	argv := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if c.noNet {
		argv = append(argv, "--net")
	}
	argv = append(append(argv, "--"), c.argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.WaitDelay = c.env, c.stdin, 10*time.Second
	tail := &tailWriter{max: 4 << 10}
	out := io.Writer(tail)
	if c.out != nil {
		out = io.MultiWriter(tail, c.out)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w\n%s", err, tail.String())
}

// needTools checks that programs of the host are there and says how to get those that are not.
func needTools(names ...string) error {
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		pkg := map[string]string{"unshare": "util-linux"}[name]
		if pkg == "" {
			pkg = name
		}
		return fmt.Errorf("%s: apt-get install %s: %w", name, pkg, ErrNoTool)
	}
	return nil
}

// inside is a program of a tree.
type inside struct {
	tree   string
	argv   []string
	env    []string // added to the sandbox's usual variables
	stdin  io.Reader
	stdout io.Writer
	// root runs it as uid 0 with the tree writable; otherwise it is the sandbox user and can write only where a
	// sandbox could.
	root bool
	// network joins the host's network, with its resolver and its certificates.
	network bool
	// bind is a host folder that appears at /mnt.
	bind string
	// overlay is a host folder with empty folders upper and work: every change goes to upper, the tree stays as it is.
	overlay string
}

// enter is the host shell program that prepares the tree's mounts and steps in. They vanish with its mount namespace.
// $1 is the tree, $2 the folder to bind, $3 the folder for overlaid changes, $4 the user, the rest the program.
const enter = `
tree=$1 bind=$2 overlay=$3 user=$4; shift 4
if [ -n "$overlay" ]; then
	mount -t overlay -o "lowerdir=$tree,upperdir=$overlay/upper,workdir=$overlay/work" overlay "$tree"
else
	mount --bind "$tree" "$tree"
fi
mount -t proc proc "$tree/proc"
mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
for n in null zero full random urandom; do : >"$tree/dev/$n"; mount --bind "/dev/$n" "$tree/dev/$n"; done
ln -s /proc/self/fd "$tree/dev/fd"; ln -s fd/0 "$tree/dev/stdin"; ln -s fd/1 "$tree/dev/stdout"; ln -s fd/2 "$tree/dev/stderr"
mkdir -m 1777 "$tree/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp"
if [ -n "$bind" ]; then mount --bind "$bind" "$tree/mnt"; fi
if [ -n "$AIRLOCK_NETWORK" ]; then
	for f in /etc/resolv.conf /etc/hosts; do
		if [ -e "$f" ] && [ -e "$tree$f" ]; then mount --bind "$f" "$tree$f"; fi
	done
	if [ -d /etc/ssl/certs ] && [ -d "$tree/etc/ssl/certs" ]; then mount --rbind /etc/ssl/certs "$tree/etc/ssl/certs"; fi
fi
if [ "$user" != 0 ]; then
	mount -t tmpfs -o mode=755,uid=1000,gid=1000 tmpfs "$tree/workspace"
	mount -o remount,bind,ro "$tree"
fi
unset AIRLOCK_NETWORK
exec chroot --userspec="$user:$user" "$tree" "$@"
`

// runInside runs a program of the tree, after whose end nothing of it is left.
func runInside(ctx context.Context, in inside) error {
	if err := needTools("unshare", "chroot", "mount", "sh"); err != nil {
		return err
	}
	user := "1000"
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "MPLBACKEND=Agg", "TERM=dumb",
		"DEBIAN_FRONTEND=noninteractive",
	}
	if in.root {
		user, env = "0", append(env, "HOME=/root")
	} else {
		env = append(env, "HOME=/workspace")
	}
	network := ""
	if in.network {
		network = "1"
	}
	env = append(env, "AIRLOCK_NETWORK="+network)
	argv := append([]string{"sh", "-euc", enter, "enter", in.tree, in.bind, in.overlay, user}, in.argv...)
	return run(ctx, command{
		argv: argv, env: append(env, in.env...), stdin: in.stdin, stdout: in.stdout, noNet: !in.network,
	})
}

// tailWriter keeps the end of what is written.
type tailWriter struct {
	max int
	buf []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	if len(w.buf) > 2*w.max {
		w.buf = append(w.buf[:0], w.buf[len(w.buf)-w.max:]...)
	}
	return len(p), nil
}

func (w *tailWriter) String() string {
	b := w.buf
	if len(b) > w.max {
		b = b[len(b)-w.max:]
	}
	return strings.TrimSpace(string(bytes.ToValidUTF8(b, []byte("?"))))
}
