package serve

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopPasses bounds the hunt for processes that fork while they are stopped;
// each pass leaves only those that were born during it.
const stopPasses = 200

// nobody is true if no process but the guest exists. It costs one system call
// and answers most questions at the end of a command.
func (p *procs) nobody() bool {
	return p.pid1 && syscall.Kill(-1, 0) == syscall.ESRCH
}

// any tells whether a process carries the marker. Zombies count: someone has
// yet to reap them.
func (p *procs) any(marker uint32) bool {
	if p.nobody() {
		return false
	}
	if p.only(marker) {
		return true
	}
	return len(p.members(marker, true)) > 0
}

// only is true if every process that exists carries the marker.
func (p *procs) only(marker uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.onlyLocked(marker)
}

func (p *procs) onlyLocked(marker uint32) bool {
	_, ours := p.marks[marker]
	return p.pid1 && ours && len(p.marks) == 1
}

// kill ends every process with the marker but some, and returns when they are gone.
func (p *procs) kill(marker uint32, except ...int) {
	if p.nobody() {
		return
	}
	p.mu.Lock()
	// Under the lock no other call can start a process between the look and
	// the kill. The kernel then reaches all of them at once.
	alone := len(except) == 0 && p.onlyLocked(marker)
	if alone {
		_ = syscall.Kill(-1, syscall.SIGKILL) // ESRCH: none is left
	}
	p.mu.Unlock()
	if !alone {
		p.hunt(marker, except...)
	}
	p.waitGone(marker, except...)
}

// hunt stops all processes with the marker but some, until a pass finds no new
// one, and kills them. Killing one by one would let the others use the time and
// the free places to fork.
func (p *procs) hunt(marker uint32, except ...int) {
	stopped := map[int]bool{}
	for range stopPasses {
		fresh := false
		for _, pid := range p.members(marker, false) {
			if slices.Contains(except, pid) || stopped[pid] {
				continue
			}
			stopped[pid], fresh = true, true
			p.signalMember(marker, pid, syscall.SIGSTOP)
		}
		if !fresh {
			break
		}
	}
	for pid := range stopped {
		p.signalMember(marker, pid, syscall.SIGKILL)
	}
}

// waitGone returns when no process with the marker is left but these. A process
// that the kernel cannot end keeps it here; the host then gives the guest up.
func (p *procs) waitGone(marker uint32, except ...int) {
	wait := time.Millisecond
	for p.left(marker, except...) {
		t := time.NewTimer(wait)
		select {
		case <-p.reaped:
		case <-t.C:
			// One that was born during the last pass.
			if wait = min(2*wait, 50*time.Millisecond); wait > 4*time.Millisecond {
				p.hunt(marker, except...)
			}
		}
		t.Stop()
	}
}

func (p *procs) left(marker uint32, except ...int) bool {
	if len(except) == 0 {
		return p.any(marker)
	}
	return len(p.others(marker, except...)) > 0
}

// others are the living processes with the marker besides some.
func (p *procs) others(marker uint32, except ...int) []int {
	return slices.DeleteFunc(p.members(marker, false), func(pid int) bool { return slices.Contains(except, pid) })
}

// killKept ends what Keep calls have left.
func (p *procs) killKept() {
	p.mu.Lock()
	kept := make([]uint32, 0, len(p.marks))
	for m := range p.marks {
		kept = append(kept, m)
	}
	p.mu.Unlock()
	for _, m := range kept {
		p.kill(m)
		p.unmark(m, false)
	}
}

// members are the processes that carry the marker.
func (p *procs) members(marker uint32, zombies bool) []int {
	want := strconv.AppendUint(nil, uint64(marker), 10)
	var list []int
	p.scan(func(pid int, status []byte) {
		if hasGroup(status, want) && (zombies || !isZombie(status)) {
			list = append(list, pid)
		}
	})
	return list
}

// scan shows the status of every process but the guest.
func (p *procs) scan(see func(pid int, status []byte)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	self, buf := os.Getpid(), make([]byte, 4096)
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			pid, nerr := strconv.Atoi(name)
			if nerr != nil || pid == self {
				continue
			}
			if status := readStatus(int(dir.Fd()), name+"/status", buf); status != nil {
				see(pid, status)
			}
		}
		if err != nil {
			return // io.EOF, or /proc is gone with the sandbox
		}
	}
}

// readStatus is nil if the process is gone.
func readStatus(dir int, name string, buf []byte) []byte {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil || n <= 0 {
		return nil
	}
	return buf[:n]
}

func isZombie(status []byte) bool {
	state := field(status, "\nState:\t")
	return len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}

// field returns the rest of the line that begins with key.
func field(status []byte, key string) []byte {
	_, rest, ok := bytes.Cut(status, []byte(key))
	if !ok {
		return nil
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return line
}

// hasGroup relies on code having exactly one supplementary group. The name of a
// process, which code chooses, cannot fake a line: the kernel escapes newlines.
func hasGroup(status, marker []byte) bool {
	return bytes.Equal(bytes.TrimSpace(field(status, "\nGroups:\t")), marker)
}

// signalMember signals a process that was seen with the marker. The open folder
// in /proc pins the process, so that a number used again is not hit.
func (p *procs) signalMember(marker uint32, pid int, sig syscall.Signal) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	status := readStatus(fd, "status", make([]byte, 4096))
	if !hasGroup(status, strconv.AppendUint(nil, uint64(marker), 10)) || isZombie(status) {
		return
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		// A kernel (gVisor) that takes no such folder for a pidfd.
		_ = syscall.Kill(pid, sig)
	}
}
