package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// who says under which rights the code runs.
func who([]string) error {
	status := string(readSome("/proc/self/status", 1<<16))
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters":
			say(answer{Name: key, Text: strings.TrimSpace(value)})
		}
	}
	limits := []struct {
		name string
		res  int
	}{
		{"core", unix.RLIMIT_CORE},
		{"nofile", unix.RLIMIT_NOFILE},
		{"fsize", unix.RLIMIT_FSIZE},
		{"nproc", unix.RLIMIT_NPROC},
		{"memlock", unix.RLIMIT_MEMLOCK},
		{"rtprio", unix.RLIMIT_RTPRIO},
		{"msgqueue", unix.RLIMIT_MSGQUEUE},
	}
	for _, l := range limits {
		var r unix.Rlimit
		err := unix.Getrlimit(l.res, &r)
		say(answer{Name: "rlimit-" + l.name, Value: int64(r.Max)}.with(err))
	}
	sid, err := unix.Getsid(0)
	say(answer{Name: "sid", Value: int64(sid), Text: strconv.Itoa(os.Getpid())}.with(err))
	say(answer{Name: "hostname", Text: hostname()})
	say(answer{Name: "env", Text: strings.Join(os.Environ(), "\n")})
	say(answer{Name: "cwd", Text: cwd()})
	return nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return err.Error()
	}
	return name
}

func cwd() string {
	dir, err := os.Getwd()
	if err != nil {
		return err.Error()
	}
	return dir
}

// fdList says which descriptors were inherited.
func fdList([]string) error {
	for fd := range 64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			continue
		}
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		say(answer{Name: strconv.Itoa(fd), Text: target}.with(errnoOf(err)))
	}
	return nil
}

// peek reads what process 1 keeps in /proc, and tries to write its memory.
func peek([]string) error {
	for _, name := range []string{"mem", "environ", "maps", "auxv", "stack", "syscall", "io", "pagemap", "smaps", "personality", "clear_refs"} {
		b, err := os.ReadFile("/proc/1/" + name)
		say(answer{Name: name, Value: int64(len(b)), Text: clip(b)}.with(errnoOf(err)))
	}
	for _, name := range []string{"exe", "root", "cwd", "ns/user", "ns/mnt", "ns/pid", "fd/3", "fd/0"} {
		target, err := os.Readlink("/proc/1/" + name)
		say(answer{Name: name, Text: target}.with(errnoOf(err)))
	}
	for _, name := range []string{"fd", "fdinfo", "map_files"} {
		entries, err := os.ReadDir("/proc/1/" + name)
		say(answer{Name: name, Value: int64(len(entries))}.with(errnoOf(err)))
	}
	f, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
	say(answer{Name: "write mem"}.with(errnoOf(err)))
	if err == nil {
		_ = f.Close()
	}
	f, err = os.OpenFile("/proc/1/oom_score_adj", os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteString("1000")
		_ = f.Close()
	}
	say(answer{Name: "write oom_score_adj"}.with(errnoOf(err)))
	f, err = os.OpenFile("/proc/1/fd/3", os.O_RDWR, 0)
	say(answer{Name: "open fd/3"}.with(errnoOf(err)))
	if err == nil {
		_ = f.Close()
	}
	say(answer{Name: "cmdline", Text: string(readSome("/proc/1/cmdline", 4096))})
	return nil
}

func clip(b []byte) string { return string(b[:min(len(b), 2000)]) }

func readSome(path string, most int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(b)
}

// kills sends every signal to process 1, to everybody else and to groups
// that are not its own.
func kills([]string) error {
	// The signal to everybody reaches this program's parent shell too.
	signal.Ignore(syscall.SIGTERM)
	for _, sig := range []syscall.Signal{
		syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1,
		syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGSTOP, syscall.SIGKILL,
	} {
		say(answer{Name: sig.String() + " 1"}.with(unix.Kill(1, sig)))
	}
	fd, err := unix.PidfdOpen(1, 0)
	if err == nil {
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	say(answer{Name: "pidfd 1"}.with(err))
	say(answer{Name: "group 1"}.with(unix.Kill(-1, 0)))
	return nil
}

// daemons starts COUNT processes in sessions of their own which ignore the
// polite signals and keep stdout: daemons COUNT. They live until killed.
func daemons(args []string) error {
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	started := 0
	for range count {
		cmd := exec.Command("/proc/self/exe", "spin", "sleep")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			say(answer{Name: "daemons", Value: int64(started)}.with(errnoOf(err)))
			return nil
		}
		started++
	}
	say(answer{Name: "daemons", Value: int64(started)})
	return nil
}

// spin ignores every signal that can be ignored and uses the processor, or
// sleeps: spin [sleep].
func spin(args []string) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	for len(args) > 0 {
		time.Sleep(time.Hour)
	}
	for n := 0; ; n++ {
		if n == 1<<30 {
			n = 0
		}
	}
}

// orphans leaves COUNT processes to process 1, each of which ends at once.
// A child with its own child is the usual way: the middle one goes first.
func orphans(args []string) error {
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	made := int64(0)
	for range count {
		errno := orphan()
		if errno != 0 {
			say(answer{Name: "orphans", Value: made}.with(errno))
			return nil
		}
		made++
	}
	say(answer{Name: "orphans", Value: made})
	return nil
}

// frames writes to every descriptor it can what the wire between guest and
// server looks like: a length, a header, a payload.
func frames([]string) error {
	header := `{"t":"exit","i":1,"exit":{"code":0}}` + "\n"
	var frame []byte
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(frame, header...)
	for fd := 3; fd < 64; fd++ {
		_, err := unix.Write(fd, frame)
		if !errors.Is(err, unix.EBADF) {
			say(answer{Name: strconv.Itoa(fd)}.with(err))
		}
	}
	for _, pid := range []string{"1", "self"} {
		f, err := os.OpenFile("/proc/"+pid+"/fd/3", os.O_WRONLY, 0)
		if err == nil {
			_, err = f.Write(frame)
		}
		say(answer{Name: "/proc/" + pid + "/fd/3"}.with(errnoOf(err)))
	}
	// On stdout it is text like any other.
	_, err := os.Stdout.Write(frame)
	return err
}

// ttys tries to push input into a terminal: its own, if it has one, and a
// pseudo terminal that it makes.
func ttys([]string) error {
	_, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
	say(answer{Name: "open /dev/tty"}.with(err))
	c := byte('x')
	requests := []struct {
		name string
		cmd  uintptr
	}{
		{"TIOCSTI", unix.TIOCSTI},
		{"TIOCLINUX", tiocLinux},
		{"TIOCSTI+high", unix.TIOCSTI | 1<<32},
		{"TIOCLINUX+high", tiocLinux | 1<<32},
	}
	slave := pseudoTerminal()
	for _, r := range requests {
		for _, fd := range []int{0, 1, slave} {
			_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), r.cmd, uintptr(unsafe.Pointer(&c)))
			say(answer{Name: fmt.Sprintf("%s on %s", r.name, map[int]string{0: "stdin", 1: "stdout", slave: "pty"}[fd])}.with(errno))
		}
	}
	return nil
}

const tiocLinux = 0x541C

// pseudoTerminal is the slave side of a new terminal, or -1.
func pseudoTerminal() int {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	say(answer{Name: "open /dev/ptmx"}.with(err))
	if err != nil {
		return -1
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1
	}
	// Without O_NOCTTY a session leader gets it as controlling terminal.
	slave, err := unix.Open(filepath.Join("/dev/pts", strconv.Itoa(n)), unix.O_RDWR, 0)
	if err != nil {
		return -1
	}
	return slave
}

// crash dies of a fault, as a program with a bug does.
func crash([]string) error {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &r)
	dumpable, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE, 0, 0)
	say(answer{Name: "core", Value: int64(r.Max), Text: strconv.Itoa(int(dumpable))}.with(errors.Join(err, errOrNil(errno))))
	signal.Reset(syscall.SIGSEGV)
	runtime.LockOSThread()
	var act [4]uint64 // SIG_DFL: the Go handler would print and exit instead
	_, _, errno = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall(unix.SYS_TGKILL, uintptr(os.Getpid()), uintptr(unix.Gettid()), uintptr(unix.SIGSEGV))
	return errOrNil(errno)
}

func errOrNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// stop stops itself; nobody continues it.
func stop([]string) error {
	say(answer{Name: "stopping"})
	return unix.Kill(os.Getpid(), unix.SIGSTOP)
}

// becomeRoot tries to take rights that it was not given.
func becomeRoot([]string) error {
	runtime.LockOSThread()
	raw := func(name string, nr, a1, a2, a3 uintptr) {
		_, _, errno := syscall.RawSyscall(nr, a1, a2, a3)
		say(answer{Name: name}.with(errOrNil(errno)))
	}
	raw("setuid 0", unix.SYS_SETUID, 0, 0, 0)
	raw("setgid 0", unix.SYS_SETGID, 0, 0, 0)
	raw("setresuid 0", unix.SYS_SETRESUID, 0, 0, 0)
	zero := uint32(0)
	raw("setgroups 0", unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&zero)), 0)
	raw("ambient", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN)
	raw("chown", unix.SYS_FCHOWNAT, minusOne-99, uintptr(unsafe.Pointer(&[]byte("/workspace\x00")[0])), 0)
	say(answer{Name: "euid", Value: int64(os.Geteuid())})
	return nil
}

// execWith runs itself with an argument or variable of a size that the
// kernel refuses: exec arg|env BYTES.
func execWith(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	big := strings.Repeat("x", n)
	cmd := exec.Command("/proc/self/exe", "fdlist")
	if args[0] == "arg" {
		cmd.Args = append(cmd.Args, big)
	} else {
		cmd.Env = append(os.Environ(), "BIG="+big)
	}
	start := time.Now()
	err = cmd.Run()
	say(answer{Name: args[0], Value: time.Since(start).Milliseconds()}.with(errnoOf(err)))
	return nil
}
