package attack

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func processThreats() []Threat {
	return []Threat{
		{10, "BackgroundKeepsStdout", "the command returns soon after its direct child", inBox(backgroundOutput)},
		{11, "DoubleForkedDaemon", "counted, killed at destroy, none left on the host", daemonOutlives},
		{12, "Zombies", "process 1 reaps; the count returns to base", inBox(zombies, Processes(64), Wall(3*time.Minute))},
		{13, "SignalsToTheGuest", "EPERM or ignored; the guest lives", inBox(signalGuest)},
		{14, "ReadTheGuest", "EPERM or EACCES; nothing of the server is readable", inBox(readGuest)},
		{15, "ForgedFrames", "no way to the wire; what is printed is data", inBox(forgeFrames)},
		{41, "StopAndIgnore", "the time limit kills, the result says timed out", inBox(refuseToEnd)},
		{59, "StartUpFiles", "only the tenant's own code is affected, never the guest", inBox(startUpFiles)},
		{60, "CoreHandler", "no core file, and no handler starts on the host", inBox(coreHandler)},
	}
}

func backgroundOutput(ctx context.Context, b *Box, f *findings) error {
	for _, script := range []string{
		"echo hi; sleep 1000 &", "echo hi; setsid sleep 1000 &", "echo hi; (sleep 1000 &) ; true",
		"echo hi; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &)", "echo hi; yes > /dev/null &",
	} {
		start := time.Now()
		out, err := b.Sh(ctx, script)
		if err != nil {
			return err
		}
		f.want(out.Stdout == "hi\n" && out.Code == 0 && !out.TimedOut, "%s: %v", script, out)
		f.want(time.Since(start) < AliveWithin, "%s: returned after %s", script, time.Since(start))
	}
	return b.Calm(ctx)
}

func daemonOutlives(ctx context.Context, e *Env) error {
	b, err := e.Start(ctx)
	if err != nil {
		return err
	}
	var f findings
	before, err := e.Leftovers()
	f.add(err)
	out, err := b.Exec(ctx, sandbox.Command{
		Shell: `setsid sh -c 'trap "" TERM HUP; setsid sleep 98765 & setsid sleep 98766 & sleep 98767' & echo started`, Keep: true,
	})
	if err != nil {
		return err
	}
	f.want(out.LeftRunning > 0, "no left-over process was counted: %v", out)
	out, err = b.Sh(ctx, `cat /proc/[0-9]*/cmdline | tr '\0' ' '`)
	f.add(err)
	f.want(strings.Contains(out.Stdout, "sleep 98766"), "the daemon did not outlive its command: %v", out)
	f.add(b.Alive(ctx))
	now, err := e.Leftovers()
	f.add(err)
	seen := slices.ContainsFunc(now.Processes, func(p string) bool { return strings.HasSuffix(p, " sleep") })
	if e.Capabilities.Kernel { // the host sees address spaces of that kernel, without the names of who lives in them
		seen = len(now.Processes) > len(before.Processes)
	}
	f.want(seen, "the host does not see the daemon in the sandbox's cgroup: %v", now.Processes)
	f.add(b.Destroy(ctx))
	now, err = e.Leftovers()
	f.add(err)
	f.want(len(now.Processes) == 0, "after destroy the host still has %v", now.Processes)
	return f.err()
}

func zombies(ctx context.Context, b *Box, f *findings) error {
	base, err := b.Usage(ctx)
	if err != nil {
		return err
	}
	many := int64(10_000)
	if b.env.Capabilities.Kernel {
		many = 1_000 // a fork costs several milliseconds there
	}
	answers, out, err := b.ProbeFor(ctx, 3*CommandTime, "orphans", strconv.FormatInt(many, 10))
	if err != nil {
		return err
	}
	f.want(answers.Get("orphans").Value == many, "orphans: %+v, %v", answers, out)
	spare := int64(4)
	if b.env.Capabilities.Kernel {
		spare = 48 // the sentry keeps threads and empty address spaces for the next processes
	}
	err = Eventually(ctx, 10*time.Second, func() (bool, error) {
		now, err := b.Usage(ctx)
		// A thread of the guest's runtime may have come or gone.
		return now.Processes <= base.Processes+spare, err
	})
	return explain("processes after 10,000 orphans", err)
}

func signalGuest(ctx context.Context, b *Box, f *findings) error {
	answers, out, err := b.Probe(ctx, "kill")
	if err != nil {
		return err
	}
	f.want(len(answers) >= 10, "the probe ended early: %v", out)
	for _, a := range answers {
		if strings.HasSuffix(a.Name, " 1") && !strings.HasPrefix(a.Name, "group") {
			f.want(a.Errno == "EPERM" || a.Errno == "ENOSYS", "%s: %q, want EPERM", a.Name, a.Errno)
		}
	}
	f.add(b.Alive(ctx))
	// This reaches every process of the code, the interpreter included.
	if _, _, err := b.Cell(ctx, sandbox.Cell{Code: "x = 1"}); err != nil {
		return err
	}
	for _, script := range []string{"kill -9 -1", "kill -STOP -1", "kill -TERM -1", "kill -9 1", "kill -QUIT 1"} {
		if _, err := b.Exec(ctx, sandbox.Command{Shell: script, Timeout: 5 * time.Second}); err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		f.add(explain(script, b.Alive(ctx)))
	}
	res, out, err := b.Cell(ctx, sandbox.Cell{Code: "print('cells go on')", Timeout: 10 * time.Second})
	f.want(err == nil && out.Stdout == "cells go on\n" && res.Code == 0, "a cell after everything was killed: %v, %v", out, err)
	return nil
}

// secretsOfGuest are the entries of /proc/1 that must not open.
var secretsOfGuest = []string{
	"mem", "environ", "maps", "auxv", "stack", "syscall", "io", "pagemap", "smaps", "personality", "clear_refs",
	"exe", "root", "cwd", "ns/user", "ns/mnt", "ns/pid", "fd/3", "fd/0", "fd", "fdinfo", "map_files",
	"write mem", "write oom_score_adj", "open fd/3",
}

func readGuest(ctx context.Context, b *Box, f *findings) error {
	if err := allRefused("trace")(ctx, b, f); err != nil {
		return err
	}
	answers, out, err := b.Probe(ctx, "peek")
	if err != nil {
		return err
	}
	f.want(out.Code == 0, "the probe ended early: %v", out)
	for _, name := range secretsOfGuest {
		a := answers.Get(name)
		if b.env.Capabilities.Kernel && (strings.HasPrefix(name, "ns/") || name == "fdinfo") && !strings.Contains(a.Text, "/") {
			continue // numbers that the kernel inside made up, and an empty folder
		}
		f.want(a.Errno != "" && a.Errno != "none", "/proc/1/%s is open: %q", name, a.Text)
	}
	f.want(!strings.Contains(out.Stdout, b.env.Secret), "the server's secret is readable")
	cmdline := answers.Get("cmdline").Text
	if b.env.Capabilities.Kernel {
		// That kernel starts the guest by its path inside, which is no secret.
		f.want(cmdline == "/dev/airlock/guest\x00gvisor\x00", "process 1 is %q", cmdline)
		return nil
	}
	f.want(strings.HasPrefix(cmdline, "airlock-guest"), "process 1 is %q", cmdline)
	f.want(!strings.Contains(cmdline, "/"), "the command line of process 1 holds a path: %q", cmdline)
	return nil
}

func forgeFrames(ctx context.Context, b *Box, f *findings) error {
	out, err := b.Exec(ctx, sandbox.Command{Argv: []string{"/bin/ls", "-1", "/proc/self/fd"}})
	if err != nil {
		return err
	}
	// The fourth is the folder that ls itself reads.
	f.want(out.Stdout == "0\n1\n2\n3\n", "a command has the descriptors %q", out.Stdout)
	answers, out, err := b.Probe(ctx, "frames")
	if err != nil {
		return err
	}
	for _, a := range answers {
		if _, isDescriptor := numbered(a.Name); isDescriptor {
			f.want(false, "descriptor %s was inherited", a.Name)
		}
	}
	f.want(answers.Get("/proc/1/fd/3").Errno == "EACCES", "opening the guest's end: %+v", answers.Get("/proc/1/fd/3"))
	f.want(strings.Contains(out.Stdout, `{"t":"exit","i":1,"exit":{"code":0}}`), "the printed frame did not arrive as text: %v", out)
	f.add(b.Alive(ctx))
	// The interpreter has a control channel of its own; garbage on it costs
	// the tenant's own interpreter and nothing else.
	_, _, err = b.Cell(ctx, sandbox.Cell{
		Code: "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'\\xff\\xff\\xff\\xff' * 64)\n  except OSError: pass", Timeout: 5 * time.Second,
	})
	f.want(err == nil, "a cell that writes garbage everywhere: %v", err)
	f.add(b.Alive(ctx))
	_, cell, err := b.Cell(ctx, sandbox.Cell{Code: "print(6 * 7)", Timeout: 20 * time.Second})
	f.want(err == nil && cell.Stdout == "42\n", "the next cell: %v, %v", cell, err)
	return nil
}

func numbered(name string) (string, bool) {
	return name, regexp.MustCompile(`^[0-9]+$`).MatchString(name)
}

func refuseToEnd(ctx context.Context, b *Box, f *findings) error {
	if err := b.PutProbe(ctx); err != nil {
		return err
	}
	const limit = time.Second
	for _, script := range []string{
		"echo begun; kill -STOP $$; echo never",
		"echo begun; exec " + probePath + " stop",
		"echo begun; sleep infinity",
		`trap '' TERM INT HUP; echo begun; while :; do sleep 1; done`,
		"echo begun; exec " + probePath + " spin",
		"echo begun; setsid " + probePath + " spin sleep & wait",
	} {
		out, err := b.Exec(ctx, sandbox.Command{Shell: script, Timeout: limit})
		if err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		f.want(out.TimedOut && !out.OOM && !out.Canceled, "%s: %v", script, out)
		f.want(strings.HasPrefix(out.Stdout, "begun\n"), "%s: the output before the limit is gone: %v", script, out)
		f.want(!strings.Contains(out.Stdout, "never"), "%s: it was continued: %v", script, out)
		f.want(out.Wall >= limit && out.Wall < limit+AliveWithin, "%s: took %s", script, out.Wall)
	}
	return b.Calm(ctx)
}

// startUpNames are what shells, Python and the loader read at start.
var startUpNames = map[string]string{
	".bashrc": "echo hijacked", ".bash_profile": "echo hijacked", ".profile": "echo hijacked", ".bash_logout": "echo hijacked",
	".inputrc": "hijacked", "sitecustomize.py": "print('hijacked')", "usercustomize.py": "print('hijacked')",
	".pythonrc.py": "print('hijacked')", "json.py": "print('hijacked')", "socket.py": "print('hijacked')",
	"os.py": "print('hijacked')", "nt.py": "print('hijacked')", "ast.py": "print('hijacked')", "asyncio.py": "print('hijacked')",
}

func startUpFiles(ctx context.Context, b *Box, f *findings) error {
	for name, text := range startUpNames {
		if err := b.Put(ctx, guest.Home+"/"+name, strings.NewReader(text+"\n"), guest.PutOptions{AsCode: true}); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
	}
	out, err := b.Sh(ctx, "echo clean")
	if err != nil {
		return err
	}
	f.want(out.Stdout == "clean\n" && out.Stderr == "", "a command after: %v", out)
	_, cell, err := b.Cell(ctx, sandbox.Cell{Code: "print('clean')"})
	if err != nil {
		return err
	}
	f.want(cell.Stdout == "clean\n" && cell.Code == 0, "a cell after: %v", cell)
	// Variables of one command are that command's own.
	_, err = b.Exec(ctx, sandbox.Command{
		Argv: []string{"/bin/true"},
		Env:  map[string]string{"LD_PRELOAD": guest.Home + "/evil.so", "BASH_ENV": guest.Home + "/.bashrc", "PYTHONSTARTUP": guest.Home + "/.pythonrc.py"},
	})
	f.add(err)
	out, err = b.Sh(ctx, "echo clean $LD_PRELOAD$BASH_ENV$PYTHONSTARTUP")
	f.want(err == nil && out.Stdout == "clean\n" && out.Stderr == "", "variables of an earlier command stayed: %v, %v", out, err)
	// What the guest does itself runs no program of the sandbox.
	content, _, err := ReadFile(ctx, b, guest.Home+"/.bashrc", guest.GetOptions{AsCode: true})
	f.want(err == nil && string(content) == "echo hijacked\n", "reading the file back: %q, %v", content, err)
	return nil
}

func coreHandler(ctx context.Context, b *Box, f *findings) error {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return err
	}
	answers, out, err := b.Probe(ctx, "crash")
	if err != nil {
		return err
	}
	f.want(out.Signal == int(syscall.SIGSEGV) && !out.OOM && !out.TimedOut, "a crash was reported as %v", out)
	// A handler behind a pipe is started with a limit of 0 too; only the
	// value 1 stops it.
	limit := answers.Get("core")
	f.want(limit.Value == 1 || limit.Value == 0 && pattern[0] != '|', "the core limit is %d with the pattern %q", limit.Value, pattern)
	list, err := b.Sh(ctx, "ls -A "+guest.Home+" /tmp | grep -i core; true")
	f.want(list.Stdout == "", "a core file was written: %v", list)
	return err
}
