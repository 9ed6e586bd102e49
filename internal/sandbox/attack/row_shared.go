package attack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// What sandboxes share although each has its own: the disk, the kernel's memory, host ids, randomness, cores.
func sharedThreats() []Threat {
	return []Threat{
		{38, "FiguresOfTheHost", "with a kernel of its own: uptime, load, memory and start time are not the host's", inBox(hostFigures)},
		{43, "DiskStorm", "page cache is charged to the sandbox and reclaimed, flushes end at its own device, neighbours answer", diskStorm},
		{44, "KernelMemory", "names, inodes and other memory of the kernel are charged to the sandbox", kernelMemory},
		{47, "IDsOfAnEarlierSandbox", "a range belongs to one sandbox until its last process is gone, and no file keeps a host id", reusedIDs},
		{48, "SharedRandomness", "no two sandboxes draw the same random numbers", sharedRandomness},
		{57, "SharedCores", "no two sandboxes run on the threads of one core at the same time; caches and a shared kernel are out of scope", sharedCores},
	}
}

// hostFigures compares what /proc says inside with what it says outside. A driver on the host's own kernel shows the
// same, which is documented.
func hostFigures(ctx context.Context, b *Box, f *findings) error {
	shared := !b.env.Capabilities.Kernel
	for _, figure := range []struct{ path, line string }{
		{"/proc/meminfo", "MemTotal:"}, {"/proc/stat", "btime"}, {"/proc/version", "Linux version"}, {"/proc/sys/kernel/random/boot_id", ""},
	} {
		out, err := b.Exec(ctx, sandbox.Command{Argv: []string{"cat", figure.path}})
		if err != nil {
			return err
		}
		host, err := os.ReadFile(figure.path)
		if err != nil {
			return err
		}
		inside, outside := lineWith(out.Stdout, figure.line), lineWith(string(host), figure.line)
		f.wantUnless(shared, inside != outside, "%s of the host is readable: %s", figure.path, outside)
	}
	return nil
}

func lineWith(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// diskStorm writes and flushes far more than the memory of its sandbox, beside a neighbour.
func diskStorm(ctx context.Context, e *Env) error {
	const limit = 64 * MiB
	b, err := e.Start(ctx, Memory(limit), Disk(64*MiB), FileBytes(64*MiB))
	if err != nil {
		return err
	}
	neighbour, err := e.Start(ctx)
	if err != nil {
		return err
	}
	var f findings
	before, err := flushes(e, b)
	if err != nil {
		return err
	}
	// It is under way when the neighbour is asked.
	started, done := make(chan struct{}), make(chan error, 1)
	var out Output
	go func() {
		var err error
		out, err = b.tee(ctx, started, "dirty", guest.Home, "40", "8")
		done <- err
	}()
	if err := begun(started, done); err != nil {
		return err
	}
	f.add(explain("the neighbour during the storm", neighbour.Alive(ctx)))
	if err := <-done; err != nil {
		return err
	}
	answers := parseAnswers(out.Stdout)
	f.want(answers.Get("dirty").Errno == "" && answers.Get("dirty").Value == 8, "the storm ended early: %v", out)
	usage, err := b.Usage(ctx)
	f.add(err)
	f.want(usage.MemoryPeak > 24*MiB && usage.MemoryPeak <= limit+chargeSlack, "40 MiB written with a limit of 64 MiB: a peak of %d bytes was charged", usage.MemoryPeak)
	f.want(usage.OOMKills == 0, "%d processes were killed for their page cache", usage.OOMKills)
	after, err := flushes(e, b)
	f.add(err)
	f.want(after == before, "%d flushes of the code reached the device, each of which all sandboxes wait for", after-before)
	f.add(b.Alive(ctx))
	return f.err()
}

// tee is a probe whose first answer closes started.
func (b *Box) tee(ctx context.Context, started chan struct{}, args ...string) (Output, error) {
	if err := b.PutProbe(ctx); err != nil {
		return Output{}, err
	}
	first := &FirstWrite{Seen: started}
	var stdout strings.Builder
	res, err := b.Sandbox.Exec(ctx, sandbox.Command{
		Argv: append([]string{probePath}, args...), Stdout: both{first, &stdout}, Timeout: 2 * CommandTime,
	})
	return Output{Result: res, Stdout: stdout.String()}, err
}

// both writes to the one and the other, neither of which can fail.
type both struct {
	first *FirstWrite
	text  *strings.Builder
}

func (w both) Write(p []byte) (int, error) {
	_, _ = w.first.Write(p)
	return w.text.Write(p)
}

// flushes is how many flush requests the device of a sandbox's workspace has completed.
func flushes(e *Env, b *Box) (int64, error) {
	loops, err := loopsOf(e.Dir)
	if err != nil {
		return 0, err
	}
	for _, loop := range loops {
		device, file, _ := strings.Cut(loop, " ")
		if filepath.Base(file) != b.Spec.Workspace.ID+".img" {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/sys/block", device, "stat"))
		if err != nil {
			return 0, err
		}
		// Fields 16 and 17 are flushes and the time of them.
		if fields := strings.Fields(string(stat)); len(fields) >= 16 {
			return strconv.ParseInt(fields[15], 10, 64)
		}
		return 0, fmt.Errorf("%s counts no flushes", device)
	}
	return 0, fmt.Errorf("no device for workspace %s among %v", b.Spec.Workspace.ID, loops)
}

// kernelMemory has the kernel remember names that do not exist, and inodes.
func kernelMemory(ctx context.Context, e *Env) error {
	const limit = 64 * MiB
	b, err := e.Start(ctx, Memory(limit))
	if err != nil {
		return err
	}
	var f findings
	before, err := b.Usage(ctx)
	if err != nil {
		return err
	}
	answers, out, err := b.ProbeFor(ctx, 2*CommandTime, "missing", guest.Home, "0", "100000", "20")
	f.add(err)
	asked := answers.Get("missing").Value
	f.want(asked > 1000, "the probe ended early: %v", out)
	after, err := b.Usage(ctx)
	f.add(err)
	// Who has a kernel of its own keeps what it likes of them.
	f.want(e.Capabilities.Kernel || after.Memory-before.Memory > asked*100, "%d names in the kernel's memory were charged with %d bytes", asked, after.Memory-before.Memory)
	answers, out, err = b.ProbeFor(ctx, 2*CommandTime, "missing", guest.Home, "100000", "500000", "20")
	f.add(err)
	f.want(answers.Get("missing").Value > 1000, "the probe ended early: %v", out)
	usage, err := b.Usage(ctx)
	f.add(err)
	f.want(usage.MemoryPeak <= limit+chargeSlack, "the peak was %d bytes with a limit of %d", usage.MemoryPeak, limit)
	f.want(usage.OOMKills == 0, "%d processes were killed for names that can be forgotten", usage.OOMKills)
	f.add(b.Alive(ctx))
	return f.err()
}

// reusedIDs has one id range only, so that the next sandbox must get that of the one before.
func reusedIDs(ctx context.Context, e *Env) (err error) {
	var f findings
	host := e.Host
	host.ID, host.LeaseDir, host.Ranges, host.FirstUID = e.Host.ID+"i", filepath.Join(e.Dir, "range"), 1, onlyRange
	driver, err := e.New(host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close(ctx), os.RemoveAll(host.LeaseDir)) }()
	first, second := e.NewSpec(nil), e.NewSpec(nil)
	for _, spec := range []*sandbox.Spec{&first, &second} {
		ws, err := e.Workspaces.Create(ctx, spec.ID, spec.Limits)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ws.Detach(ctx), e.Workspaces.Remove(ws.ID)) }()
		if err := ws.Attach(ctx); err != nil {
			return err
		}
		spec.Workspace = ws
	}
	if err := tenantLeaves(ctx, e, driver, first, second, &f); err != nil {
		return err
	}
	if err := noFileOf(first.Workspace, &f); err != nil {
		return err
	}
	// The next tenant has the ids of the first, and the first's files have them neither for him nor for anybody.
	next, err := driver.Create(ctx, second)
	if err != nil {
		return errors.Join(f.err(), err)
	}
	b := &Box{Sandbox: next, env: e, Spec: second}
	out, err := b.Sh(ctx, "find / -xdev -name of-the-first 2>/dev/null; find /workspace /tmp /files /dev/shm -name of-the-first")
	f.add(err)
	f.want(out.Stdout == "", "files of the first tenant: %v", out)
	f.add(next.Destroy(ctx))
	return f.err()
}

// onlyRange lies beyond the ranges of servers and of the doctor.
const onlyRange = 0xf000_0000

// tenantLeaves runs a sandbox of the first tenant and sees that nobody gets its ids while a process of it is there.
func tenantLeaves(ctx context.Context, e *Env, driver sandbox.Driver, first, second sandbox.Spec, f *findings) error {
	sb, err := driver.Create(ctx, first)
	if err != nil {
		return err
	}
	b := &Box{Sandbox: sb, env: e, Spec: first}
	_, err = b.Exec(ctx, sandbox.Command{Keep: true, Shell: `for d in /workspace /tmp /files/output /dev/shm; do echo x > $d/of-the-first; chmod 6777 $d/of-the-first; done
		trap '' TERM; setsid sleep 1000 & setsid sh -c 'trap "" TERM HUP; sleep 1000' & true`})
	f.add(err)
	f.add(b.Freeze(ctx))
	for range 2 {
		other, err := driver.Create(ctx, second)
		f.want(errors.Is(err, sandbox.ErrCapacity), "the ids of a living sandbox were given away: %v, want ErrCapacity", err)
		if err == nil {
			f.add(other.Destroy(ctx))
		}
	}
	if err := sb.Destroy(ctx); err != nil {
		return err
	}
	left, err := processesOf(onlyRange)
	f.want(len(left) == 0, "processes with the ids that are free now: %v", left)
	return err
}

// noFileOf wants the ids on disk to be those that the code saw, which mean nobody on the host.
func noFileOf(ws *sandbox.Workspace, f *findings) error {
	var st unix.Stat_t
	for path, want := range map[string]uint32{"workspace/of-the-first": 1000, "tmp/of-the-first": 1000, "files/output/of-the-first": 1000, "files": 0} {
		if err := unix.Fstatat(int(ws.Mount().Fd()), path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		f.want(st.Uid == want && st.Gid == want, "%s is of uid %d and gid %d on disk, want %d", path, st.Uid, st.Gid, want)
	}
	return nil
}

// processesOf lists the processes of the host whose uid lies in the range that begins there.
func processesOf(first int) ([]string, error) {
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, path := range all {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		uid, err := strconv.Atoi(strings.Fields(lineWith(string(status), "Uid:") + " - -")[1])
		if err == nil && uid >= first && uid < first+idRange {
			found = append(found, path)
		}
	}
	return found, nil
}

// drawing prints what programs take for unpredictable, one to a line.
const drawing = `import random, uuid, tempfile, secrets, os
print(random.random())
print(uuid.uuid4())
print(os.path.basename(tempfile.mktemp()))
print(hash("airlock"))
print(secrets.token_hex(8))
print(random.SystemRandom().random())
try:
  import numpy
  print(numpy.random.random())
  print(numpy.random.default_rng().random())
except ImportError: pass
`

// sharedRandomness compares interpreters that may have been copied from one another: cells and commands, of two
// sandboxes and of one that has been made again.
func sharedRandomness(ctx context.Context, e *Env) error {
	var f findings
	drawn := map[string]string{} // value -> where
	for n := range 3 {
		b, err := e.Start(ctx)
		if err != nil {
			return err
		}
		_, cell, err := b.Cell(ctx, sandbox.Cell{Code: drawing, Timeout: CommandTime})
		if err != nil {
			return err
		}
		command, err := b.Exec(ctx, sandbox.Command{Argv: []string{"python3", "-c", drawing}})
		if err != nil {
			return err
		}
		for kind, out := range map[string]Output{"cell": cell, "command": command} {
			where := fmt.Sprintf("the %s of sandbox %d", kind, n+1)
			values := strings.Fields(out.Stdout)
			f.want(len(values) >= 6, "%s drew %v", where, out)
			for _, value := range values {
				f.want(drawn[value] == "", "%s drew %s, and so did %s", where, value, drawn[value])
				drawn[value] = where
			}
		}
	}
	return f.err()
}

// sharedKernel is why namespaces do not hold the row, whatever the cores do.
const sharedKernel = "the kernel is shared, and what it leaves in caches and predictors with it"

// sharedCores looks at the cookies of core scheduling: the kernel runs only processes with the same one on the threads of
// a core. What two tenants can learn of each other through caches and the kernel itself is out of its reach.
func sharedCores(ctx context.Context, e *Env) error {
	var f findings
	cookies := map[uint64]bool{0: true}
	for range 2 {
		b, err := e.Start(ctx)
		if err != nil {
			return err
		}
		now, err := e.Leftovers()
		if err != nil {
			return err
		}
		for _, p := range now.Processes {
			pid, _, _ := strings.Cut(p, " ")
			id, _, err := whose(pid, "airlock-"+e.Host.ID+"-")
			if err != nil || id != b.ID() {
				continue
			}
			cookie, err := coreCookie(pid)
			if err != nil {
				return oneThreadACore(e, &f, err)
			}
			f.want(!cookies[cookie], "process %s has the cookie %#x, which is that of another sandbox or of all", p, cookie)
			cookies[cookie] = true
			break
		}
	}
	f.want(len(cookies) == 3, "only %d processes have a cookie, want 2", len(cookies)-1)
	f.wantUnless(!e.Capabilities.Kernel, e.Capabilities.Kernel, sharedKernel)
	return f.err()
}

// oneThreadACore is what is left without cookies: cores that the kernel sees one thread of are never shared at one time.
func oneThreadACore(e *Env, f *findings, reason error) error {
	shared, err := sharedThreadLists(os.DirFS("/sys/devices/system/cpu"))
	if err != nil {
		return err
	}
	f.wantUnless(!e.Capabilities.Kernel, len(shared) == 0,
		"processors %s are threads of one core and the kernel cannot keep two sandboxes off it: %v; boot it with nosmt, or one built with core scheduling",
		strings.Join(shared, " and "), reason)
	f.wantUnless(!e.Capabilities.Kernel, e.Capabilities.Kernel, sharedKernel)
	return f.err()
}

// sharedThreadLists are the processors that are one core, of every core that has several.
func sharedThreadLists(cpus fs.FS) ([]string, error) {
	files, err := fs.Glob(cpus, "cpu[0-9]*/topology/thread_siblings_list")
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: the kernel does not say which processors are one core", ErrNotTried)
	}
	if err != nil {
		return nil, err
	}
	var shared []string
	for _, name := range files {
		text, err := fs.ReadFile(cpus, name)
		if err != nil {
			return nil, err
		}
		// A single number is a core with one thread.
		list := strings.TrimSpace(string(text))
		if _, err := strconv.Atoi(list); err != nil && !slices.Contains(shared, list) {
			shared = append(shared, list)
		}
	}
	return shared, nil
}

// coreCookie asks the kernel for the core scheduling cookie of a process.
func coreCookie(pid string) (uint64, error) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return 0, err
	}
	var cookie uint64
	const thread = 0 // the scope of the question: this one thread
	_, _, errno := unix.Syscall6(unix.SYS_PRCTL, unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(n), thread, uintptr(unsafe.Pointer(&cookie)), 0)
	switch errno {
	case 0:
		return cookie, nil
	case unix.EINVAL:
		return 0, errors.New("it was built without core scheduling (CONFIG_SCHED_CORE)")
	case unix.ENODEV:
		return 0, errors.New("it sees one thread on each core")
	default:
		return 0, errno
	}
}
