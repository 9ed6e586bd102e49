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
	t *testing.T
}

func startServer(t *testing.T, data string) *server {
	t.Helper()
	p, err := servertest.Start(t.Context(), servertest.Options{
		Binary: os.Getenv("AIRLOCK_BIN"), Data: data,
		// Idle sandboxes are not frozen here: their ticking is how a test sees that they live. A pool would have new ones at
		// once after the start, which are no leftovers.
		Env: []string{"AIRLOCK_CONTAINER_IDLE_FREEZE=-1s", "AIRLOCK_SANDBOX_POOL=0", "AIRLOCK_SANDBOX_DISK_BYTES=134217728"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &server{p, t}
}

func (s *server) kill() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
}

// turn has the scripted model run one bash command.
func (s *server) turn(ctx context.Context, container, command string) (servertest.Turn, error) {
	return s.Ask(ctx, container, "```bash\n"+command+"\n```")
}

// wantClean gives the restart ten seconds.
func (s *server) wantClean() {
	s.t.Helper()
	if err := s.WaitClean(s.t.Context(), 10*time.Second); err != nil {
		s.t.Fatal(err)
	}
}
