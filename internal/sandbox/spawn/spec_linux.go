package spawn

import (
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// Environment is what commands inside see beside the guest's own variables. Numeric libraries size themselves by the
// processors of the host, which /proc shows, and not by the limit.
func Environment(spec sandbox.Spec) map[string]string {
	threads := strconv.Itoa(max(1, int(math.Ceil(spec.Limits.CPUs))))
	env := map[string]string{}
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"} {
		env[name] = threads
	}
	maps.Copy(env, spec.Env)
	return env
}

// Rlimits hold per process, beside the limits of the whole sandbox.
func Rlimits(l sandbox.Limits) [][3]uint64 {
	const stack = 8 << 20
	want := [][3]uint64{
		{unix.RLIMIT_NOFILE, uint64(l.OpenFiles), uint64(l.OpenFiles)},
		{unix.RLIMIT_FSIZE, uint64(l.FileBytes), uint64(l.FileBytes)},
		{unix.RLIMIT_NPROC, uint64(l.Processes), uint64(l.Processes)},
		// Threat 60: one byte, because with zero the kernel would still start a core_pattern handler on the host.
		{unix.RLIMIT_CORE, 1, 1},
		{unix.RLIMIT_MEMLOCK, 64 << 10, 64 << 10},
		{unix.RLIMIT_MSGQUEUE, 800 << 10, 800 << 10},
		{unix.RLIMIT_STACK, stack, unix.RLIM_INFINITY},
		{unix.RLIMIT_NICE, 0, 0},
		{unix.RLIMIT_RTPRIO, 0, 0},
	}
	for n, w := range want {
		var have unix.Rlimit
		// A limit can only be lowered without CAP_SYS_RESOURCE, which the server itself may lack.
		if unix.Getrlimit(int(w[0]), &have) == nil {
			want[n][1], want[n][2] = min(w[1], have.Max), min(w[2], have.Max)
		}
	}
	return want
}

// UnixConn turns a descriptor of a socket pair, which it takes, into a connection.
func UnixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "sandbox")
	defer f.Close() // FileConn has its own copy
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("socket of guest: %w", err)
	}
	return c.(*net.UnixConn), nil
}

// Shm is the size of /dev/shm. It is charged to the memory limit; its own size only keeps one mistake from taking all of it.
func Shm(l sandbox.Limits) walls.Tmpfs {
	return walls.Tmpfs{Bytes: l.MemoryBytes / 2, Inodes: min(l.Inodes, 16384)}
}
