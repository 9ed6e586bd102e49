package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// MiB is in bytes.
const MiB = 1 << 20

// chargeSlack is by how much the kernel's own count may pass a limit for a
// moment, because it charges in batches.
const chargeSlack = MiB

func resourceThreats() []Threat {
	return []Threat{
		{1, "ForkBomb", "the process limit stops it, the command ends, everything of it dies, neighbours do not notice", forkBombs},
		{2, "MemoryWithoutEnd", "the process is killed and reported as out of memory, the guest lives", memoryWithoutEnd},
		{3, "MemoryThroughFiles", "tmpfs, memfd and shared memory are charged to the sandbox", fillMemoryFiles},
		{4, "DiskFull", "ENOSPC inside only; the host's disk gives at most the limit", fillDisks},
		{5, "InodesAndDepth", "the inode limit holds; destroy ends in time", inBox(useUpInodes, Inodes(12_000), Processes(64))},
		{6, "SparseFiles", "apparent size may be large, export refuses it", inBox(sparseFiles, FileBytes(4<<30))},
		{9, "Descriptors", "EMFILE, and the sandbox lives", inBox(useUpDescriptors, OpenFiles(256))},
		{42, "SpinningProcesses", "limited to the quota; the guest and the neighbours answer", spinning},
		{45, "IPCThatOutlivesProcesses", "own namespace; gone after destroy", ipcObjects},
	}
}

// bombs multiply without end. The last line keeps the direct child alive, so
// that the time limit is what ends them.
var bombs = map[string]string{
	"shell":    `b() { b | b & }; b; sleep 60`,
	"python":   "exec python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'",
	"sessions": `trap '' TERM; while :; do setsid sh -c 'trap "" TERM; sleep 60' & done`,
}

func forkBombs(ctx context.Context, e *Env) error {
	b, err := e.Start(ctx, Processes(64))
	if err != nil {
		return err
	}
	neighbour, err := e.Start(ctx)
	if err != nil {
		return err
	}
	var f findings
	for name, script := range bombs {
		f.add(explain(name, burn(ctx, b, neighbour, script, &f)))
		f.add(explain(name, b.Calm(ctx)))
	}
	answers, out, err := b.Probe(ctx, "daemons", "1000")
	f.add(err)
	f.want(answers.Get("daemons").Errno == "EAGAIN", "1,000 daemons: %+v, %v", answers, out)
	f.add(b.Calm(ctx))
	f.add(b.Alive(ctx))
	f.add(destroyWhileBurning(ctx, b, &f))
	return f.err()
}

func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// guestOwn is what the guest may have beside the processes of the code.
const guestOwn = 64

// burn runs a bomb for two seconds while the neighbour must go on.
func burn(ctx context.Context, b, neighbour *Box, script string, f *findings) error {
	type ended struct {
		out Output
		err error
	}
	done := make(chan ended, 1)
	go func() {
		out, err := b.Exec(ctx, sandbox.Command{Shell: script, Timeout: 2 * time.Second})
		done <- ended{out, err}
	}()
	f.add(explain("neighbour", neighbour.Alive(ctx)))
	end := <-done
	if end.err != nil {
		return end.err
	}
	// A shell that is refused its forks may give up before its time.
	f.want(end.out.TimedOut || end.out.Code != 0, "the bomb ended as if nothing had stopped it: %v", end.out)
	f.want(end.out.Wall < 2*time.Second+AliveWithin, "the bomb ran %s", end.out.Wall)
	usage, err := b.Usage(ctx)
	most := int64(64 + guestOwn)
	if b.env.Capabilities.Kernel {
		// The host counts the threads of the kernel inside, which are several for each thread of the code.
		most = 4*64 + 512
	}
	f.want(usage.Processes <= most, "%d processes, the limit is %d", usage.Processes, most)
	return err
}

// destroyWhileBurning ends a sandbox whose processes multiply.
func destroyWhileBurning(ctx context.Context, b *Box, f *findings) error {
	done := make(chan error, 1)
	go func() {
		_, err := b.Exec(ctx, sandbox.Command{Shell: bombs["shell"], Timeout: CommandTime})
		done <- err
	}()
	err := Eventually(ctx, 10*time.Second, func() (bool, error) {
		usage, err := b.Usage(ctx)
		return usage.Processes > 48, err
	})
	start := time.Now()
	err = errors.Join(err, b.Destroy(ctx))
	f.want(time.Since(start) < 5*time.Second, "destroy took %s", time.Since(start))
	f.want(errors.Is(<-done, sandbox.ErrGone), "the command did not end with ErrGone")
	return err
}

func memoryWithoutEnd(ctx context.Context, e *Env) error {
	if !e.DiesWhole() {
		return inBox(eatMemory, Memory(96*MiB))(ctx, e)
	}
	b, err := e.Start(ctx, Memory(96*MiB))
	if err != nil {
		return err
	}
	var f findings
	_, err = b.Sh(ctx, "echo kept > kept && sync")
	f.add(err)
	_, out, err := b.Probe(ctx, "eat", "4096")
	f.want(errors.Is(err, sandbox.ErrOutOfMemory) && b.ExitReason() == sandbox.ExitOOM, "eating 4 GiB: %v, %v, the sandbox ended by %q", err, out, b.ExitReason())
	usage, err := b.Usage(ctx)
	f.add(err)
	f.want(usage.MemoryPeak <= 96*MiB+chargeSlack, "the peak was %d", usage.MemoryPeak)
	f.add(b.Destroy(ctx))
	again, err := e.Restart(ctx, b)
	if err != nil {
		return errors.Join(f.err(), err)
	}
	out, err = again.Sh(ctx, "cat kept")
	f.add(err)
	f.want(out.Stdout == "kept\n", "the workspace afterwards: %v", out)
	f.wantUnless(true, false, "the limit ends the whole sandbox, which is reported as out of memory")
	return f.err()
}

func eatMemory(ctx context.Context, b *Box, f *findings) error {
	answers, out, err := b.Probe(ctx, "eat", "4096")
	if err != nil {
		return err
	}
	f.want(out.OOM && out.Signal == int(syscall.SIGKILL), "eating 4 GiB: %v", out)
	f.want(!out.TimedOut && !out.Canceled, "reported as something else too: %v", out)
	f.want(answers.Get("oom_score_adj").Text == "500", "oom_score_adj of code is %q", answers.Get("oom_score_adj").Text)
	out, err = b.Sh(ctx, probePath+" eat 4096 >/dev/null; echo code $?")
	if err != nil {
		return err
	}
	f.want(strings.Contains(out.Stdout, "code 137"), "a killed child of a shell: %v", out)
	f.want(out.Code == 0 && !out.OOM, "the shell itself was not killed, but: %v", out)
	usage, err := b.Usage(ctx)
	f.want(usage.OOMKills >= 2, "%d kills were counted, want 2", usage.OOMKills)
	f.want(usage.MemoryPeak <= 96*MiB+chargeSlack, "the peak was %d", usage.MemoryPeak)
	return err
}

func fillMemoryFiles(ctx context.Context, e *Env) error {
	const limit = 96 * MiB
	var f findings
	for _, attempt := range []struct {
		name string
		args []string
	}{
		{"memfd", []string{"memfd", "4096"}},
		{"shm", []string{"shm", "4096"}},
		{"fill", []string{"fill", "/dev/shm/x", "4096"}},
		{"fill", []string{"fill", guest.Home + "/x", "4096"}},
		{"files", []string{"files", "/dev/shm", "1000000"}},
	} {
		b, err := e.StartBlank(ctx, Memory(limit), Disk(512*MiB), FileBytes(4<<30))
		if err != nil {
			return err
		}
		answers, out, err := b.Probe(ctx, attempt.args...)
		dead := e.DiesWhole() && errors.Is(err, sandbox.ErrOutOfMemory)
		if !dead {
			f.add(explain(strings.Join(attempt.args, " "), err))
		}
		stopped := out.OOM || dead
		for _, a := range answers {
			stopped = stopped || a.Errno == "ENOSPC" || a.Errno == "ENOMEM"
		}
		f.want(stopped, "%v was not stopped: %+v, %v", attempt.args, answers, out)
		usage, err := b.Usage(ctx)
		f.add(err)
		f.want(usage.MemoryPeak <= limit+chargeSlack, "%v: the peak was %d, the limit is %d", attempt.args, usage.MemoryPeak, int64(limit))
		if !dead {
			f.add(explain(strings.Join(attempt.args, " "), b.Ping(ctx)))
		}
	}
	return f.err()
}

func fillDisks(ctx context.Context, e *Env) error {
	const limit = 32 * MiB
	var f findings
	b, err := e.Start(ctx, Disk(limit))
	if err != nil {
		return err
	}
	for _, path := range []string{guest.Home + "/big", "/tmp/big"} {
		answers, out, err := b.Probe(ctx, "fill", path, "1024")
		f.add(err)
		a := answers[max(0, len(answers)-1):]
		f.want(len(a) == 1 && a[0].Errno == "ENOSPC" && a[0].Value <= limit, "filling %s: %+v %v", path, answers, out)
		var st unix.Stat_t
		f.add(unix.Stat(e.Workspaces.Path(b.Spec.Workspace.ID), &st))
		f.want(st.Blocks*512 <= limit+MiB, "the image takes %d bytes of the host's disk, the limit is %d", st.Blocks*512, int64(limit))
		out, err = b.Sh(ctx, "rm "+path+" && echo again > "+path+" && cat "+path+" && rm "+path)
		f.add(err)
		f.want(out.Stdout == "again\n", "writing after the disk was full: %v", out)
	}
	f.add(b.Alive(ctx))
	small, err := e.Start(ctx, FileBytes(8*MiB))
	if err != nil {
		return errors.Join(f.err(), err)
	}
	out, err := small.Sh(ctx, "dd if=/dev/zero of=f bs=1M count=20 status=none; echo code $?; stat -c %s f")
	f.add(err)
	f.want(out.Stdout == "code 153\n8388608\n", "a file beyond its limit: %v", out)
	f.add(small.Alive(ctx))
	return f.err()
}

func useUpInodes(ctx context.Context, b *Box, f *findings) error {
	answers, out, err := b.Probe(ctx, "deep", guest.Home, "10000")
	if err != nil {
		return err
	}
	deep := answers.Get("deep")
	f.want(deep.Value >= 5000, "only %d nested folders were made (%s): %v", deep.Value, deep.Errno, out)
	for _, dir := range []string{guest.Home, "/dev/shm"} {
		answers, out, err := b.Probe(ctx, "files", dir, "1000000")
		if err != nil {
			return err
		}
		a := answers.Get("files")
		f.want(a.Errno == "ENOSPC", "a million files in %s: %+v, %v", dir, a, out)
	}
	f.add(b.Alive(ctx))
	start := time.Now()
	err = b.Remove(ctx, guest.Home+"/d", guest.RemoveOptions{AsCode: true, All: true})
	// The sentry holds a descriptor of the host for each folder of the path. When they end, the call fails, and nothing else.
	bounded := b.env.Capabilities.Kernel && err != nil && strings.Contains(err.Error(), "too many open files")
	f.want(err == nil || bounded, "remove 10,000 levels: %v", err)
	f.want(time.Since(start) < 30*time.Second, "removing took %s", time.Since(start))
	return nil
}

func sparseFiles(ctx context.Context, b *Box, f *findings) error {
	answers, _, err := b.Probe(ctx, "sparse", guest.Home)
	if err != nil {
		return err
	}
	f.want(answers.Get("truncate 1 EiB").Errno == "EFBIG", "1 EiB: %+v", answers.Get("truncate 1 EiB"))
	f.want(answers.Get("truncate 1 GiB").Errno == "", "1 GiB: %+v", answers.Get("truncate 1 GiB"))
	f.want(answers.Get("fallocate 1 GiB").Errno == "ENOSPC", "reserving more than the disk: %+v", answers.Get("fallocate 1 GiB"))
	info, err := b.Stat(ctx, guest.Home+"/apparent", guest.StatOptions{AsCode: true})
	if err != nil {
		return err
	}
	// gVisor tells no blocks but those of the apparent size; what is exported is bounded by that size in any case.
	f.want(info.Size == 1<<30 && (info.Blocks < MiB || b.env.Capabilities.Kernel), "a sparse file looks like %+v", info)
	for _, options := range []guest.GetOptions{{AsCode: true, NoSymlinks: true, Max: 32 * MiB}, {Max: 32 * MiB}} {
		_, _, err = ReadFile(ctx, b, guest.Home+"/apparent", options)
		f.want(errors.Is(err, guest.ErrTooLarge), "export of a sparse file: %v, want ErrTooLarge", err)
	}
	return nil
}

func useUpDescriptors(ctx context.Context, b *Box, f *findings) error {
	for _, kind := range []string{"file", "socket", "pipe", "inotify", "epoll", "timerfd", "eventfd", "memfd", "signalfd"} {
		answers, out, err := b.Probe(ctx, "fds", kind, "100000")
		if err != nil {
			return err
		}
		a := answers.Get(kind)
		refused := kind == "inotify" && a.Errno == "ENOSYS" // see row 46
		f.want(refused || a.Errno == "EMFILE" && a.Value < 256, "100,000 of %s: %+v, %v", kind, a, out)
	}
	out, err := b.Sh(ctx, "ulimit -Hn 100000; ulimit -Hn")
	f.want(out.Stdout == "256\n", "raising the limit: %v", out)
	return err
}

func spinning(ctx context.Context, e *Env) error {
	b, err := e.Start(ctx)
	if err != nil {
		return err
	}
	neighbour, err := e.Start(ctx)
	if err != nil {
		return err
	}
	var f findings
	f.add(burn(ctx, b, neighbour, "for i in $(seq 50); do (while :; do :; done) & done; wait", &f))
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		_, err := b.Sandbox.Exec(ctx, sandbox.Command{
			Shell: "echo go; for i in $(seq 50); do (while :; do :; done) & done; wait", Stdout: &FirstWrite{Seen: started}, Timeout: 5 * time.Second,
		})
		done <- err
	}()
	if err := begun(started, done); err != nil {
		return err
	}
	f.add(explain("while 50 processes spin", b.Alive(ctx)))
	f.add(<-done)
	f.add(b.Calm(ctx))
	return f.err()
}

// ipcObjects leaves System V segments and a message queue behind and looks for
// them on the host.
func ipcObjects(ctx context.Context, e *Env) error {
	// Other programs of the host make and remove segments meanwhile; none of them has ids that high.
	hostHas := func() (string, error) {
		shm, err := os.ReadFile("/proc/sysvipc/shm")
		var ours strings.Builder
		for line := range strings.Lines(string(shm)) {
			const uid = 7 // the column
			fields := strings.Fields(line)
			if len(fields) <= uid {
				continue
			}
			if id, err := strconv.Atoi(fields[uid]); err == nil && id >= idRange {
				ours.WriteString(line)
			}
		}
		return ours.String(), err
	}
	before, err := hostHas()
	if err != nil {
		return err
	}
	b, err := e.Start(ctx)
	if err != nil {
		return err
	}
	var f findings
	answers, out, err := b.Probe(ctx, "shm", "32")
	f.add(err)
	f.want(answers.Get("shm").Value == 32 && answers.Get("shm").Errno == "", "shared memory inside its limits: %+v, %v", answers, out)
	during, err := hostHas()
	f.add(err)
	f.want(during == before, "a segment is visible on the host: %s", during)
	f.add(b.Alive(ctx))
	f.add(b.Destroy(ctx))
	other, err := e.Start(ctx)
	if err != nil {
		return errors.Join(f.err(), err)
	}
	out, err = other.Sh(ctx, "tail -n +2 /proc/sysvipc/shm; ls -A /dev/mqueue /dev/shm | grep -v :; true")
	f.want(strings.TrimSpace(out.Stdout) == "", "a later sandbox sees %v", out)
	f.add(err)
	return f.err()
}
