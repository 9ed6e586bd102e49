package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func tenantThreats() []Threat {
	return []Threat{
		{46, "Neighbours", "nothing of another sandbox is visible; different host ids; modes 0700 on the host", neighbours},
		{50, "SecretsOfTheServer", "absent from every environment, argument and file inside", inBox(secrets)},
	}
}

func neighbours(ctx context.Context, e *Env) error {
	var f findings
	a, err := e.Start(ctx)
	if err != nil {
		return err
	}
	b, err := e.Start(ctx)
	if err != nil {
		return err
	}
	const marker = "marker-of-a"
	out, err := a.Exec(ctx, sandbox.Command{Keep: true, Shell: `umask 0
		for d in /workspace /tmp /dev/shm /files/output; do echo marker-of-a > $d/marker-of-a; done
		python3 -c 'import socket,time
s = socket.socket(socket.AF_UNIX); s.bind("\0marker-of-a"); s.listen()
t = socket.socket(); t.bind(("127.0.0.1", 7777)); t.listen()
print("up", flush=True); time.sleep(1000)' marker-of-a & sleep 1`})
	if err != nil {
		return err
	}
	f.want(strings.Contains(out.Stdout, "up"), "the servers of the first sandbox: %v", out)
	out, err = b.Sh(ctx, `cat /proc/[0-9]*/cmdline | tr '\0' ' '; ls -aR /workspace /tmp /dev/shm /files; cat /proc/net/unix /proc/net/tcp; cat /proc/sysvipc/shm; df; cat /proc/self/mountinfo`)
	f.add(err)
	// The script itself does not name the marker.
	f.want(!strings.Contains(out.Stdout, marker), "the second sandbox sees the first: %v", out)
	f.want(!strings.Contains(out.Stdout, a.Spec.Workspace.ID+".img"), "the second sandbox sees the first's workspace")
	answers, _, err := b.Probe(ctx, "unix", "@"+marker)
	f.add(err)
	f.want(answers.Get("@"+marker).Errno == "ECONNREFUSED", "the first's abstract socket: %+v", answers)
	answers, _, err = b.Probe(ctx, "connect", "tcp,127.0.0.1:7777")
	f.add(err)
	f.want(answers.Get("tcp,127.0.0.1:7777").Errno == "ECONNREFUSED", "the first's port: %+v", answers)
	f.add(watched(ctx, a, b, &f))
	f.add(differentIDs(e, &f))
	f.add(closedModes(e, &f))
	f.add(a.Alive(ctx))
	f.add(b.Alive(ctx))
	return f.err()
}

// watched has one sandbox watch the files that both are shown while the other one runs a program from them.
func watched(ctx context.Context, a, b *Box, f *findings) error {
	started, done := make(chan struct{}), make(chan error, 1)
	var out Output
	go func() {
		var err error
		out, err = a.tee(ctx, started, "watch", guest.Home+"/stop", "/usr/bin", "/usr/lib")
		done <- err
	}()
	if err := begun(started, done); err != nil {
		return err
	}
	// A name that the first sandbox never opens by itself.
	_, err := b.Sh(ctx, "for n in 1 2 3 4 5; do b2sum --version; done; ls /usr/lib")
	_, stopErr := a.Sh(ctx, "touch stop")
	if err := errors.Join(err, stopErr, <-done); err != nil {
		return err
	}
	for _, answer := range parseAnswers(out.Stdout) {
		f.want(answer.Name != "seen" || answer.Text != "b2sum", "a sandbox sees that its neighbour runs b2sum")
		f.want(!strings.HasPrefix(answer.Name, "dnotify") || answer.Errno != "", "a sandbox may watch a shared folder: %+v", answer)
	}
	return nil
}

// idRange is the width of the host ids that one sandbox may use.
const idRange = 65536

// differentIDs reads from the host which uids the processes of each sandbox
// really have.
func differentIDs(e *Env, f *findings) error {
	now, err := e.Leftovers()
	if err != nil {
		return err
	}
	owner := map[int]string{} // range -> sandbox
	for _, p := range now.Processes {
		pid, _, _ := strings.Cut(p, " ")
		id, uid, err := whose(pid, "airlock-"+e.Host.ID+"-")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.want(uid >= idRange, "process %s of sandbox %s is uid %d of the host", p, id, uid)
		if other, taken := owner[uid/idRange]; taken {
			f.want(other == id, "sandboxes %s and %s share the id range of uid %d", id, other, uid)
		}
		owner[uid/idRange] = id
	}
	f.want(len(owner) == 2, "%d id ranges are in use, want 2: %v", len(owner), owner)
	return nil
}

// whose says to which sandbox a process belongs and under which host uid.
func whose(pid, prefix string) (id string, uid int, err error) {
	groups, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return "", 0, err
	}
	_, rest, _ := strings.Cut(string(groups), prefix)
	id = strings.FieldsFunc(rest, func(r rune) bool { return r == '/' || r == '\n' })[0]
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Uid:" {
			uid, err = strconv.Atoi(fields[1])
		}
	}
	return id, uid, err
}

// closedModes looks at what other users of the host could open.
func closedModes(e *Env, f *findings) error {
	return filepath.WalkDir(e.Workspaces.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f.want(info.Mode().Perm()&0o077 == 0, "%s is open to other users of the host: %v", path, info.Mode())
		return nil
	})
}

func secrets(ctx context.Context, b *Box, f *findings) error {
	out, err := b.Exec(ctx, sandbox.Command{Shell: `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'; set; printenv
		grep -rsl "$NEEDLE" /workspace /tmp /files /etc /run /var /dev/shm 2>/dev/null | head`, Env: map[string]string{"NEEDLE": "secret-of-"}})
	if err != nil {
		return err
	}
	f.want(!strings.Contains(out.Stdout, b.env.Secret) && !strings.Contains(out.Stdout, SecretVariable), "the server's secret is inside: %v", out)
	for _, name := range []string{"ANTHROPIC", "AIRLOCK_", "AWS_", "GOPATH", "SSH_", "HOME=/root", "XDG_", "TOKEN"} {
		f.want(!strings.Contains(out.Stdout, name), "a variable with %s came from the server", name)
	}
	_, cell, err := b.Cell(ctx, sandbox.Cell{Code: "import os\nprint(dict(os.environ))\nfor p in os.listdir('/proc'):\n  try: print(open(f'/proc/{p}/environ').read())\n  except OSError: pass"})
	if err != nil {
		return err
	}
	f.want(!strings.Contains(cell.Stdout, b.env.Secret), "the interpreter knows the server's secret: %v", cell)
	// What the guest can read for a caller is not more than that.
	for _, path := range []string{"/proc/1/environ", "/proc/self/environ", "/proc/1/cmdline"} {
		content, _, err := ReadFile(ctx, b, path, guest.GetOptions{AsCode: true, Max: MiB})
		f.want(err != nil || !strings.Contains(string(content), b.env.Secret), "%s through the guest: %s", path, fmt.Sprintf("%.80q", content))
	}
	return nil
}
