package attack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func hostThreats() []Threat {
	return []Threat{
		{16, "HostileGuest", "the connection ends with a protocol error, or the lie is dropped; nothing outside is touched", hostileGuests},
		{51, "ServerKilled", "after a restart nothing of the old run is left within 10 s, and the workspace is whole", serverKilled},
		{52, "GuestKilled", "the command fails with a clear error, the workspace can be used again", guestKilled},
		{53, "HostUsedUp", "create fails closed, nothing runs without limits, nothing is left", hostUsedUp},
	}
}

func hostileGuests(ctx context.Context, e *Env) error {
	var f findings
	big := make([]byte, guest.MaxData)
	exit := func(id uint64) *guest.Frame { return &guest.Frame{Type: guest.TypeExit, ID: id, Exit: &guest.Exit{}} }
	for name, h := range map[string]struct {
		answer hostileAnswer
		broken bool // the connection must end with ErrProtocol
	}{
		"giant frame":       {func(g *hostileGuest, _ *guest.Frame) error { return g.raw(1<<31, "x") }, true},
		"empty frame":       {func(g *hostileGuest, _ *guest.Frame) error { return g.raw(0, "") }, true},
		"no header":         {func(g *hostileGuest, _ *guest.Frame) error { return g.raw(4, "abcd") }, true},
		"header of garbage": {func(g *hostileGuest, _ *guest.Frame) error { return g.raw(5, "{{{{\n") }, true},
		"deep header":       {func(g *hostileGuest, _ *guest.Frame) error { return g.raw(400_001, strings.Repeat("[", 400_000)+"\n") }, true},
		"output without end": {func(g *hostileGuest, c *guest.Frame) error {
			return g.flood(10_000, &guest.Frame{Type: guest.TypeData, ID: c.ID, Stream: 1, Payload: big})
		}, true},
		"frames without payload": {func(g *hostileGuest, c *guest.Frame) error {
			return g.flood(100_000, &guest.Frame{Type: guest.TypeData, ID: c.ID, Stream: 1})
		}, true},
		"third stream": {func(g *hostileGuest, c *guest.Frame) error {
			return errors.Join(g.w.Write(&guest.Frame{Type: guest.TypeData, ID: c.ID, Stream: 3, Payload: big}), g.w.Write(exit(c.ID)))
		}, true},
		"exit without result": {func(g *hostileGuest, c *guest.Frame) error {
			return g.w.Write(&guest.Frame{Type: guest.TypeExit, ID: c.ID})
		}, true},
		"wrong ids first": {func(g *hostileGuest, c *guest.Frame) error {
			return errors.Join(g.w.Write(exit(c.ID+1)), g.w.Write(exit(1<<63)), g.w.Write(exit(c.ID)), g.w.Write(exit(c.ID)))
		}, false},
	} {
		f.add(explain(name, hostileExec(ctx, h.answer, h.broken)))
	}
	f.add(hostileFiles(ctx))
	content, err := os.ReadFile(e.SecretFile)
	f.want(err == nil && string(content) == e.Secret, "a file of the host was changed: %q, %v", content, err)
	return f.err()
}

// hostileExec runs one command against the double and looks how it ends.
func hostileExec(ctx context.Context, answer hostileAnswer, broken bool) error {
	ctx, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	conn, g := startHostile(answer)
	defer func() { <-g.done }()
	defer conn.Close()
	if err := conn.Ready(ctx); err != nil {
		return fmt.Errorf("ready: %w", err)
	}
	_, err := conn.Exec(ctx, guest.Command{Argv: []string{"/bin/true"}, Stdout: slow{ctx}, OutputBytes: 1 << 20})
	switch {
	case broken && (err == nil || !errors.Is(conn.Err(), guest.ErrProtocol)):
		return fmt.Errorf("ended with %v, the connection with %v, want ErrProtocol", err, conn.Err()) //nolint:errorlint // either may be nil
	case !broken && err != nil:
		return fmt.Errorf("ended with %w", err)
	}
	return nil
}

// slow is a caller that does not read: what the guest sends must be bounded by
// the window, not by the caller.
type slow struct{ ctx context.Context }

func (s slow) Write(p []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(200 * time.Millisecond):
		return len(p), nil
	}
}

// hostileFiles lets the double answer file calls with lies.
func hostileFiles(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	var f findings
	entry := &guest.Entry{Path: []byte("../../../../etc/passwd"), Type: guest.TypeFile, Size: 1 << 60}
	// A list is at most as long as was asked for, and its paths stay text.
	conn, g := startHostile(func(g *hostileGuest, c *guest.Frame) error {
		return g.flood(50_000, &guest.Frame{Type: guest.TypeInfo, ID: c.ID, Entry: entry})
	})
	listed, err := conn.List(ctx, guest.Home, 1, 100)
	f.want(err != nil || len(listed) <= 100, "a list of at most 100 has %d entries", len(listed))
	f.add(errors.Join(conn.Close(), waitFor(g.done)))
	// A file is at most as long as was asked for, whatever the guest says.
	conn, g = startHostile(func(g *hostileGuest, c *guest.Frame) error {
		if c.Type != guest.TypeGet {
			return nil
		}
		if err := g.w.Write(&guest.Frame{Type: guest.TypeInfo, ID: c.ID, Entry: &guest.Entry{Path: []byte("/x"), Type: guest.TypeFile, Size: 10}}); err != nil {
			return err
		}
		return g.flood(10_000, &guest.Frame{Type: guest.TypeData, ID: c.ID, Stream: 1, Payload: make([]byte, guest.MaxData)})
	})
	r, _, err := conn.Get(ctx, "/x", guest.GetOptions{Max: 1 << 10})
	if err == nil {
		n, readErr := io.Copy(io.Discard, r)
		f.want(readErr != nil && n <= 1<<20, "an endless file: %d bytes, %v", n, readErr)
		f.add(r.Close())
	}
	f.add(errors.Join(conn.Close(), waitFor(g.done)))
	return f.err()
}

func waitFor(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-time.After(AliveWithin):
		return errNotYet
	}
}

// Victims is how many sandboxes the process to kill holds.
const Victims = 3

func serverKilled(ctx context.Context, e *Env) error {
	if e.Part == nil {
		return fmt.Errorf("no process to kill: %w", ErrNotTried)
	}
	var f findings
	dir := filepath.Join(e.Dir, "killed")
	host := sandbox.Host{ID: e.Host.ID + "k", RunDir: filepath.Join(dir, "run")}
	for _, folder := range []string{host.RunDir, filepath.Join(dir, "workspaces")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	bystander, err := e.Start(ctx)
	if err != nil {
		return err
	}
	f.add(killServer(ctx, e, host, dir, &f))
	next, err := e.New(host)
	if err != nil {
		return errors.Join(f.err(), err)
	}
	f.add(explain("sweep", next.Sweep(ctx)))
	f.add(onlyWorkspacesLeft(ctx, host, dir))
	f.add(intact(ctx, e, next, dir, &f))
	f.add(next.Close(ctx))
	f.add(explain("the neighbour instance", bystander.Alive(ctx)))
	return errors.Join(f.err(), os.RemoveAll(dir))
}

// quiet is a snapshot that allows everything of this process and nothing of
// an instance.
func quiet() Snapshot {
	s := Snapshot{Goroutines: 1 << 20}
	// descriptors cannot fail where /proc is mounted, and every sandbox needs it.
	s.Descriptors, _ = descriptors()
	return s
}

// onlyWorkspacesLeft allows what lies in the workspace folder and nothing else.
func onlyWorkspacesLeft(ctx context.Context, host sandbox.Host, dir string) error {
	allowed := quiet()
	kept, err := foldersBelow(filepath.Join(dir, "workspaces"))
	if err != nil {
		return err
	}
	allowed.Folders = append(kept, dir, host.RunDir)
	return WaitClean(ctx, host.ID, dir, allowed)
}

// killServer starts the process that plays the server, waits until its
// sandboxes run commands, and kills it.
func killServer(ctx context.Context, e *Env, host sandbox.Host, dir string, f *findings) error {
	cmd := e.startable(ctx, partHold, host, dir)
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	running, snapErr := TakeSnapshot(host.ID, dir)
	f.want(len(running.Processes) >= 2*Victims && len(running.Cgroups) >= Victims, "before the kill: %d processes, %d cgroups", len(running.Processes), len(running.Cgroups))
	killErr := cmd.Process.Kill()
	// Wait says that it was killed, which was the point.
	_ = cmd.Wait()
	if err != nil || strings.TrimSpace(line) != "holding" {
		return fmt.Errorf("the process to kill said %q: %w", line, err)
	}
	return errors.Join(snapErr, killErr)
}

// intact uses the workspaces of the killed run again.
func intact(ctx context.Context, e *Env, driver sandbox.Driver, dir string, f *findings) error {
	spaces := &sandbox.Workspaces{Dir: filepath.Join(dir, "workspaces")}
	ids, err := spaces.List()
	if err != nil {
		return err
	}
	f.want(len(ids) == Victims, "%d workspaces survived, want %d", len(ids), Victims)
	for _, id := range ids {
		ws, err := spaces.Open(id)
		if err != nil {
			return err
		}
		if err := ws.Attach(ctx); err != nil {
			return fmt.Errorf("attach after the kill: %w", err)
		}
		spec := e.NewSpec(nil)
		spec.Workspace = ws
		sb, err := driver.Create(ctx, spec)
		if err != nil {
			return errors.Join(err, ws.Detach(ctx))
		}
		b := &Box{Sandbox: sb, env: e, Spec: spec}
		out, err := b.Sh(ctx, "cat kept")
		f.want(err == nil && out.Stdout == "synced\n", "a synced file after the kill: %v, %v", out, err)
		f.add(errors.Join(b.Destroy(ctx), ws.Detach(ctx), spaces.Remove(id)))
	}
	return nil
}

// guestKilled ends process 1 from the host, as the kernel does when memory is
// short, while a command runs.
func guestKilled(ctx context.Context, e *Env) error {
	b, err := e.Start(ctx)
	if err != nil {
		return err
	}
	var f findings
	if _, err := b.Sh(ctx, "echo kept > kept"); err != nil {
		return err
	}
	if err := b.Sync(ctx); err != nil {
		return err
	}
	pid, err := FirstProcess(e, b.ID())
	if err != nil {
		return err
	}
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := b.Sandbox.Exec(ctx, sandbox.Command{Shell: "echo begun; sleep 1000", Stdout: &FirstWrite{Seen: started}})
		done <- err
	}()
	if err := begun(started, done); err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}
	select {
	case err := <-done:
		f.want(errors.Is(err, sandbox.ErrGone), "the command ended with %v, want ErrGone", err)
	case <-time.After(AliveWithin):
		f.want(false, "the command still hangs")
	}
	select {
	case <-b.Done():
	case <-time.After(AliveWithin):
		f.want(false, "the end was not noticed")
	}
	f.want(b.ExitReason() == sandbox.ExitCrash || b.ExitReason() == sandbox.ExitOOM, "the reason is %q", b.ExitReason())
	_, err = b.Sh(ctx, "true")
	f.want(errors.Is(err, sandbox.ErrGone), "a command after the end: %v, want ErrGone", err)
	f.add(b.Destroy(ctx))
	again, err := e.Restart(ctx, b)
	if err != nil {
		return errors.Join(f.err(), err)
	}
	out, err := again.Sh(ctx, "cat kept")
	f.want(err == nil && out.Stdout == "kept\n", "the workspace afterwards: %v, %v", out, err)
	return f.err()
}

// FirstProcess is the host's pid of process 1 of a sandbox.
func FirstProcess(e *Env, id string) (int, error) {
	now, err := e.Leftovers()
	if err != nil {
		return 0, err
	}
	for _, p := range now.Processes {
		name, _, _ := strings.Cut(p, " ")
		status, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			continue
		}
		owner, _, err := whose(name, "airlock-"+e.Host.ID+"-")
		if err == nil && owner == id && strings.Contains(string(status), "NSpid:\t"+name+"\t1\n") {
			return strconv.Atoi(name)
		}
	}
	return 0, fmt.Errorf("no process 1 of sandbox %s among %v", id, now.Processes)
}

// hostUsedUp takes away, one after the other, what a sandbox needs.
func hostUsedUp(ctx context.Context, e *Env) error {
	var f findings
	f.add(explain("id ranges", fewRanges(ctx, e, &f)))
	f.add(explain("lease folder", brokenHost(ctx, e, &f, func(h *sandbox.Host, blocked string) { h.LeaseDir = blocked })))
	f.add(explain("cgroups", noCgroups(ctx, e, &f)))
	f.add(explain("full disk", fullDisk(ctx, e, &f)))
	noRootFS(ctx, e, &f)
	return f.err()
}

func fewRanges(ctx context.Context, e *Env, f *findings) (err error) {
	host := e.Host
	host.ID, host.LeaseDir, host.Ranges = e.Host.ID+"r", filepath.Join(e.Dir, "leases"), 1
	if err := os.MkdirAll(host.LeaseDir, 0o700); err != nil {
		return err
	}
	driver, err := e.New(host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close(ctx), os.RemoveAll(host.LeaseDir)) }()
	first, err := driver.Create(ctx, e.NewSpec(nil))
	if err != nil {
		return err
	}
	_, err = driver.Create(ctx, e.NewSpec(nil))
	f.want(errors.Is(err, sandbox.ErrCapacity), "a second sandbox with one id range: %v, want ErrCapacity", err)
	f.add(first.Ping(ctx))
	if err := first.Destroy(ctx); err != nil {
		return err
	}
	again, err := driver.Create(ctx, e.NewSpec(nil))
	if err != nil {
		return fmt.Errorf("after the range was free again: %w", err)
	}
	return again.Destroy(ctx)
}

// noCgroups tries it in a process for which all hierarchies are read-only.
func noCgroups(ctx context.Context, e *Env, f *findings) error {
	if e.Part == nil {
		return fmt.Errorf("no process without cgroups: %w", ErrNotTried)
	}
	dir := filepath.Join(e.Dir, "confined")
	host := sandbox.Host{ID: e.Host.ID + "c", RunDir: filepath.Join(dir, "run")}
	if err := os.MkdirAll(host.RunDir, 0o700); err != nil {
		return err
	}
	cmd := e.startable(ctx, partConfined, host, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	f.want(err == nil && strings.HasPrefix(string(out), "refused:"), "a sandbox where no cgroup can be made: %q, %v", out, err)
	f.add(WaitClean(ctx, host.ID, filepath.Join(dir, "none"), quiet()))
	return os.RemoveAll(dir)
}

// brokenHost has a file where a folder must be made.
func brokenHost(ctx context.Context, e *Env, f *findings, change func(*sandbox.Host, string)) error {
	blocked := filepath.Join(e.Dir, "blocked")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		return err
	}
	host := e.Host
	host.ID = e.Host.ID + "b"
	change(&host, filepath.Join(blocked, "below"))
	driver, err := e.New(host)
	if err == nil {
		_, err = driver.Create(ctx, e.NewSpec(nil))
		f.add(driver.Close(ctx))
	}
	f.want(err != nil, "a sandbox was made without it")
	f.add(WaitClean(ctx, host.ID, filepath.Join(e.Dir, "none"), quiet()))
	return os.Remove(blocked)
}

// fullDisk keeps workspaces on a file system of one megabyte.
func fullDisk(ctx context.Context, e *Env, f *findings) (err error) {
	small := filepath.Join(e.Dir, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("airlock-sandboxtest", small, "tmpfs", 0, "size=64k,nr_inodes=16"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(small, unix.MNT_DETACH), os.Remove(small)) }()
	spaces := &sandbox.Workspaces{Dir: small}
	ws, err := spaces.Create(ctx, "full", limits())
	f.want(err != nil, "a workspace was made on a full disk")
	f.want(err == nil || errors.Is(err, sandbox.ErrCapacity), "a full disk is %v, want ErrCapacity", err)
	f.want(!spaces.Exists("full"), "half a workspace stayed")
	if err == nil {
		return errors.Join(ws.Detach(ctx), spaces.Remove("full"))
	}
	return nil
}

func noRootFS(ctx context.Context, e *Env, f *findings) {
	spec := e.NewSpec([]Option{func(s *sandbox.Spec) { s.RootFS = filepath.Join(e.Dir, "absent") }})
	_, err := e.Driver.Create(ctx, spec)
	f.want(err != nil, "a sandbox was made without a root file system")
	spec = e.NewSpec([]Option{Memory(1)})
	_, err = e.Driver.Create(ctx, spec)
	f.want(err != nil, "a sandbox was made with one byte of memory")
	spec = e.NewSpec([]Option{Processes(-1)})
	_, err = e.Driver.Create(ctx, spec)
	f.want(err != nil, "a sandbox was made without a process limit")
}
