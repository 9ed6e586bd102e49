package attack

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func kernelThreats() []Threat {
	return []Threat{
		{24, "Mounts", "EPERM, and the mount table stays", inBox(mounts)},
		{25, "Namespaces", "EPERM or ENOSYS; nested user namespaces are impossible", inBox(namespaces)},
		{26, "SetuidPrograms", "no gain: nosuid and no_new_privs", inBox(setuidPrograms)},
		{27, "DeviceNodes", "EPERM or absent", inBox(deviceNodes)},
		{28, "KernelInterfaces", "EPERM or ENOSYS", inBox(allRefused("kernel"))},
		{29, "KernelSettings", "read-only or absent", inBox(kernelSettings)},
		{36, "TerminalInjection", "own session, no controlling terminal, the ioctl denied", inBox(terminals)},
		{37, "Clock", "EPERM", inBox(clocks)},
		{39, "OtherABIs", "killed, or no such call, in all three entries of the kernel", inBox(otherABIs)},
		{40, "Personality", "only known values", inBox(personality)},
	}
}

// personality values that weaken a program: READ_IMPLIES_EXEC and no
// randomisation with it.
func personality(ctx context.Context, b *Box, f *findings) error {
	const nr = "135"
	for _, value := range []string{"0x0400000", "0x0440000", "0x100400000"} {
		answers, out, err := b.Probe(ctx, "call", "native", nr, value)
		if err != nil {
			return err
		}
		f.want(answers.Get("native").Refused(), "personality(%s): %+v, %v", value, answers, out)
	}
	answers, out, err := b.Probe(ctx, "call", "native", nr, "0xffffffff")
	f.want(answers.Get("native").Errno == "", "asking for the personality, as programs do: %+v, %v", answers, out)
	return err
}

// seen runs a script before and after an attempt and demands equal output.
func seen(ctx context.Context, b *Box, f *findings, script string, attempt func() error) error {
	before, err := b.Sh(ctx, script)
	if err != nil {
		return err
	}
	if err := attempt(); err != nil {
		return err
	}
	after, err := b.Sh(ctx, script)
	f.want(before.Stdout == after.Stdout, "%s said %.300q before and %.300q after", script, before.Stdout, after.Stdout)
	return err
}

func mounts(ctx context.Context, b *Box, f *findings) error {
	return seen(ctx, b, f, "cat /proc/self/mountinfo", func() error {
		if err := allRefused("mount")(ctx, b, f); err != nil {
			return err
		}
		out, err := b.Sh(ctx, "mount -t tmpfs none /tmp; mount --bind / /workspace; mount -o remount,rw /; umount -l /proc; umount /tmp; touch /etc/x /usr/x; echo end")
		f.want(out.Stdout == "end\n" && strings.Count(out.Stderr, "\n") >= 7, "the commands of the image: %v", out)
		return err
	})
}

func namespaces(ctx context.Context, b *Box, f *findings) error {
	return seen(ctx, b, f, "readlink /proc/self/ns/*", func() error {
		if err := allRefused("namespace")(ctx, b, f); err != nil {
			return err
		}
		answers, out, err := b.Probe(ctx, "clones")
		if err != nil {
			return err
		}
		f.want(len(answers) == 16, "the probe ended early: %v", out)
		for _, a := range answers {
			want := "EPERM"
			if strings.HasPrefix(a.Name, "clone3") {
				// libc falls back to clone only when clone3 does not exist.
				want = "ENOSYS"
			}
			f.want(a.Errno == want, "%s: %q, want %s", a.Name, a.Errno, want)
		}
		out, err = b.Sh(ctx, "unshare -Ur true && echo in; nsenter -t 1 -m true && echo in; ls /proc/1/ns 2>/dev/null; echo end")
		f.want(out.Stdout == "end\n", "unshare and nsenter of the image: %v", out)
		return err
	})
}

func setuidPrograms(ctx context.Context, b *Box, f *findings) error {
	answers, _, err := b.Probe(ctx, "who")
	if err != nil {
		return err
	}
	for name, want := range map[string]string{
		"Uid": "1000\t1000\t1000\t1000", "Gid": "1000\t1000\t1000\t1000", "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		f.want(answers.Get(name).Text == want, "%s is %q, want %q", name, answers.Get(name).Text, want)
	}
	gained, _, err := b.Probe(ctx, "setuid")
	if err != nil {
		return err
	}
	for _, a := range gained {
		if a.Name == "euid" {
			f.want(a.Value == guest.CodeUID, "the effective uid is %d", a.Value)
			continue
		}
		f.want(a.Errno == "EPERM", "%s: %q, want EPERM", a.Name, a.Errno)
	}
	if err := ownSetuid(ctx, b, f); err != nil {
		return err
	}
	table, err := b.Sh(ctx, "cat /proc/self/mounts")
	for line := range strings.Lines(table.Stdout) {
		fields := strings.Fields(line)
		// A node of /dev is not a place for programs.
		if len(fields) > 3 && !strings.HasPrefix(fields[1], "/dev/") {
			f.want(slices.Contains(strings.Split(fields[3], ","), "nosuid"), "%s is mounted without nosuid: %s", fields[1], fields[3])
		}
	}
	return err
}

// ownSetuid tries programs that are setuid: those of the image, if it has any,
// copies that the code makes, and one that belongs to the guest's own user.
func ownSetuid(ctx context.Context, b *Box, f *findings) error {
	if err := b.PutProbe(ctx); err != nil {
		return err
	}
	program, _, err := ReadFile(ctx, b, "/usr/bin/id", guest.GetOptions{})
	if err != nil {
		return err
	}
	if err := b.Put(ctx, "/tmp/roots", bytes.NewReader(program), guest.PutOptions{Mode: 0o6755}); err != nil {
		return err
	}
	out, err := b.Sh(ctx, `cp /usr/bin/id own && chmod 6755 own && ./own -u
		cp /bin/bash sh && chmod 6755 sh && ./sh -p -c 'echo $EUID'
		stat -c %u /tmp/roots; /tmp/roots -u; /tmp/roots -g
		for p in $(find / -xdev -perm /6000 -type f 2>/dev/null); do case $p in */su) echo | timeout 5 su -c 'echo gained';; esac; done`)
	f.want(out.Stdout == "1000\n1000\n0\n1000\n1000\n", "setuid programs ran as: %v", out)
	return err
}

// harmless are the entries of /dev that programs need.
var harmless = []string{
	"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "fd", "stdin", "stdout", "stderr",
}

func deviceNodes(ctx context.Context, b *Box, f *findings) error {
	for _, dir := range []string{guest.Home, "/tmp", "/dev/shm", "/dev"} {
		answers, out, err := b.Probe(ctx, "mknod", dir)
		if err != nil {
			return err
		}
		f.want(len(answers) == 7, "the probe ended early: %v", out)
		for _, a := range answers {
			f.want(slices.Contains([]string{"EPERM", "EACCES", "EROFS"}, a.Errno), "mknod %s in %s: %q", a.Name, dir, a.Errno)
		}
	}
	out, err := b.Sh(ctx, "ls -1 /dev")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(out.Stdout) {
		if name == "airlock" && b.env.Capabilities.Kernel {
			continue // the folder of the guest program, read-only
		}
		f.want(slices.Contains(harmless, name), "/dev/%s is there", name)
	}
	answers, _, err := b.Probe(ctx, "open", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/loop0", "/dev/loop-control", "/dev/vda", "/dev/sda", "/dev/net/tun", "/dev/vsock", "/dev/vhost-vsock")
	if err != nil {
		return err
	}
	for _, a := range answers {
		f.want(a.Errno == "ENOENT", "%s: %q, want ENOENT", a.Name, a.Errno)
	}
	return nil
}

func kernelSettings(ctx context.Context, b *Box, f *findings) error {
	files := []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/sys/fs/binfmt_misc/register",
		"/proc/sysrq-trigger", "/proc/irq/0/smp_affinity", "/proc/mtrr", "/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/1/setgroups",
		"/proc/self/uid_map", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs", "/etc/passwd", "/etc/ld.so.preload", "/usr/bin/env",
	}
	settings := func() string {
		var all strings.Builder
		for _, path := range files[:6] {
			// A setting that this kernel lacks reads as nothing both times.
			content, _ := os.ReadFile(path)
			all.Write(content)
		}
		return all.String()
	}
	before := settings()
	answers, _, err := b.Probe(ctx, append([]string{"write"}, files...)...)
	if err != nil {
		return err
	}
	f.want(len(answers) == len(files), "%d of %d files were tried", len(answers), len(files))
	for _, a := range answers {
		if a.Name == "/proc/self/uid_map" && a.Errno == "EINVAL" && b.env.Capabilities.Kernel {
			continue // gVisor finds the text malformed before it asks for the right to write it
		}
		f.want(slices.Contains([]string{"EROFS", "EACCES", "EPERM", "ENOENT"}, a.Errno), "writing %s: %q", a.Name, a.Errno)
	}
	f.want(settings() == before, "settings of the host changed")
	hidden, _, err := b.Probe(ctx, "open", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kmsg", "/proc/kallsyms", "/proc/acpi", "/proc/scsi", "/sys", "/sys/firmware")
	if err != nil {
		return err
	}
	for _, a := range hidden {
		text := strings.TrimSpace(a.Text)
		// Without rights kallsyms reads as Zeros.
		zeros := a.Name == "/proc/kallsyms" && strings.HasPrefix(text, "0000000000000000 ")
		f.want(a.Errno != "" || text == "" || zeros, "%s shows %.80q", a.Name, text)
	}
	return nil
}

func terminals(ctx context.Context, b *Box, f *findings) error {
	for _, stdin := range []bool{false, true} {
		c := sandbox.Command{Argv: []string{probePath, "tty"}}
		if stdin {
			c.Stdin = strings.NewReader("")
		}
		if err := b.PutProbe(ctx); err != nil {
			return err
		}
		out, err := b.Exec(ctx, c)
		if err != nil {
			return err
		}
		answers := parseAnswers(out.Stdout)
		f.want(answers.Get("open /dev/tty").Errno != "" && answers.Get("open /dev/tty").Errno != "none", "there is a controlling terminal: %v", out)
		for _, request := range []string{"TIOCSTI", "TIOCLINUX", "TIOCSTI+high", "TIOCLINUX+high"} {
			a := answers.Get(request + " on pty")
			f.want(a.Refused() || a.Errno == "EBADF", "%s on a pseudo terminal: %q", request, a.Errno)
			a = answers.Get(request + " on stdin")
			f.want(a.Errno != "" && a.Errno != "none", "%s on stdin: %q", request, a.Errno)
		}
	}
	return nil
}

func clocks(ctx context.Context, b *Box, f *findings) error {
	if err := allRefused("clock")(ctx, b, f); err != nil {
		return err
	}
	out, err := b.Sh(ctx, "date -s 2001-01-01; hostname evil; echo end $(hostname)")
	f.want(!strings.Contains(out.Stdout, "evil") && strings.Contains(out.Stdout, "end"), "date and hostname of the image: %v", out)
	return err
}

// otherABIs makes the same denied calls by the entries of amd64, i386 and
// x32. Each table has its own numbers.
func otherABIs(ctx context.Context, b *Box, f *findings) error {
	const newUser = "0x10000000"
	for _, call := range []struct{ name, native, i386 string }{
		{"unshare(NEWUSER)", "272", "310"}, {"mount", "165", "21"}, {"ptrace", "101", "26"}, {"bpf", "321", "357"}, {"setns", "308", "346"},
	} {
		for _, entry := range []string{"native", "x32", "i386"} {
			nr := call.native
			if entry == "i386" {
				nr = call.i386
			}
			answers, out, err := b.ProbeFor(ctx, 5*time.Second, "call", entry, nr, newUser)
			if err != nil {
				return err
			}
			a := answers.Get(entry)
			killed := out.Signal == int(syscall.SIGSYS)
			// SIGSEGV is what a kernel without the i386 gate answers; the
			// filter's own guard is then proven by its unit test alone.
			noGate := entry == "i386" && a.Errno == "SIGSEGV"
			// The stub process of systrap waits for ever after a call of x32, which it does not know: no call is made.
			stuck := entry == "x32" && b.env.Capabilities.Kernel && out.TimedOut
			f.want(killed || a.Refused() || noGate || stuck, "%s by %s: %+v, %v", call.name, entry, a, out)
		}
	}
	return nil
}
