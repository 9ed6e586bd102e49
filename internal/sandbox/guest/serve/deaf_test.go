package serve_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/serve"
)

// deafVar names the part of a process that sends itself every signal that the guest is deaf to.
const deafVar = "AIRLOCK_TEST_DEAF"

func actDeaf() error {
	if err := serve.IgnoreSignals(); err != nil {
		return err
	}
	for _, sig := range serve.Ignored() {
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			return err
		}
	}
	// What it began with, a child inherits.
	show := exec.Command("/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
	show.Stdout = os.Stdout
	return show.Run()
}

func TestSignalsOfCodeDoNothingToTheGuestAndItsChildrenHearThem(t *testing.T) {
	t.Parallel()
	guest := exec.CommandContext(t.Context(), "/proc/self/exe")
	guest.Env, guest.WaitDelay = []string{deafVar + "=1"}, time.Second
	out, err := guest.CombinedOutput()
	if err != nil {
		t.Fatalf("the guest has ended: %v, %s", err, out)
	}
	var deaf uint64 // others may be ignored by whoever started the tests
	for _, sig := range serve.Ignored() {
		deaf |= 1 << (sig - 1)
	}
	for line := range strings.Lines(string(out)) {
		set, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if set&deaf != 0 {
			t.Errorf("a child begins with %s", line)
		}
	}
	if strings.Count(string(out), "\n") != 2 {
		t.Errorf("the child said %q", out)
	}
}
