package server

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// guard keeps the host alive: it refuses work that memory or disk cannot carry, with an answer that clients retry.
type guard struct {
	data    string // the data folder, whose file system fills
	reserve int64  // memory that sandboxes leave free; 0 = reserveFor
	// diskUsed and memory are replaced by tests.
	diskUsed func(dir string) (float64, error)
	memory   func() (total, available int64, err error)
}

const (
	diskFull     = 0.95 // reads and deletes only
	diskCrowded  = 0.85 // no new uploads and containers
	sandboxShare = 24 << 20
	retryFull    = time.Minute
	retryMemory  = 5 * time.Second
)

// reserveFor is what the host keeps: 2 GiB or a tenth, but never more than a quarter of a small machine.
func reserveFor(total int64) int64 { return min(max(2<<30, total/10), total/4) }

// admitSandbox is asked before a sandbox starts. Available memory counts what all sandboxes use now; limits are not
// summed, since most of them are never reached.
func (g *guard) admitSandbox(context.Context) error {
	if err := g.admitWrite(); err != nil {
		return err
	}
	read := g.memory
	if read == nil {
		read = readMemory
	}
	total, available, err := read()
	if err != nil {
		return fmt.Errorf("read memory: %w", err)
	}
	if available-sandboxShare < or(g.reserve, reserveFor(total)) {
		return wire.Overloaded(retryMemory, "The server has no memory for another sandbox at the moment.").WithCode("memory_full")
	}
	return nil
}

// admitNew is asked before a container is made or a file uploaded.
func (g *guard) admitNew() error { return g.disk(diskCrowded) }

// admitWrite is asked before anything that may write.
func (g *guard) admitWrite() error { return g.disk(diskFull) }

func (g *guard) disk(limit float64) error {
	used := g.diskUsed
	if used == nil {
		used = sandbox.DiskUsed
	}
	f, err := used(g.data)
	if err != nil {
		return fmt.Errorf("read disk usage: %w", err)
	}
	if f < limit {
		return nil
	}
	return wire.Overloaded(retryFull, "The server's disk is %.0f %% full; until there is room it takes no more data.", f*100).WithCode("disk_full")
}

func readMemory() (total, available int64, err error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	if total, err = memoryLine(b, "MemTotal"); err != nil {
		return 0, 0, err
	}
	available, err = memoryLine(b, "MemAvailable")
	return total, available, err
}

func memoryLine(meminfo []byte, name string) (int64, error) {
	for line := range strings.Lines(string(meminfo)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", name)
}
