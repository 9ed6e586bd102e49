package crash

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

// server is one run of the binary on a data folder.
type server struct {
	*servertest.Process
	t    *testing.T
	left []string // on the host when it was dead
}

func startServer(t *testing.T, driver, data string, env ...string) *server {
	t.Helper()
	p, err := servertest.Start(t.Context(), servertest.Options{
		Binary: os.Getenv("AIRLOCK_BIN"), Data: data,
		// Idle sandboxes are not frozen here: their ticking is how a test sees that they live.
		Env: append([]string{
			"AIRLOCK_SANDBOX_DRIVER=" + driver, "AIRLOCK_CONTAINER_IDLE_FREEZE=-1s", "AIRLOCK_SANDBOX_DISK_BYTES=134217728",
		}, env...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &server{Process: p, t: t}
}

func (s *server) kill() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.left = s.Leftovers()
}

// end stops the last run as an operator does: it takes with it what a killed one leaves to the next.
func (s *server) end() {
	s.t.Helper()
	if err := s.Stop(); err != nil {
		s.t.Errorf("the last run ended with %v", err)
	}
	if err := s.WaitClean(s.t.Context(), 10*time.Second); err != nil {
		s.t.Error(err)
	}
}

// turn has the scripted model run one bash command.
func (s *server) turn(ctx context.Context, container, command string) (servertest.Turn, error) {
	return s.Ask(ctx, container, "```bash\n"+command+"\n```")
}

// wantClean gives the restart ten seconds to take away what the run before left. The new pool is filling meanwhile.
func (s *server) wantClean(before *server) {
	s.t.Helper()
	if err := s.WaitCleared(s.t.Context(), 10*time.Second, before.left); err != nil {
		s.t.Fatal(err)
	}
}
